"""`rmqha-admin bundle`: one archive with the state of all servers, for support."""

import os.path
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import click

import rmq_ha
from rmq_ha.base.config import properties
from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.host.files import files_of
from rmq_ha.base.host.process import local_address
from rmq_ha.base.host.surroundings import real_surroundings
from rmq_ha.base.wire.members import to_members
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.asking import Asking
from rmq_ha.client.lookup.brokers import (
    broker_config,
    consumer_offsets,
    group_configs,
    runtime_info,
    topic_configs,
)
from rmq_ha.client.lookup.kv_config import namesrv_config
from rmq_ha.client.rules.settings import name_servers
from rmq_ha.ops.admin.bundle_archive import BundleArchive, BundleGap
from rmq_ha.ops.admin.doctor.facts import BrokerFacts, ClusterFacts
from rmq_ha.ops.admin.doctor.findings import judge
from rmq_ha.ops.admin.doctor.gather import DoctorScope, gather
from rmq_ha.ops.admin.doctor.probe import exchange, page_in
from rmq_ha.ops.admin.doctor.rules import RULES
from rmq_ha.ops.admin.message_text import time_text
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.redaction import Redactor
from rmq_ha.ops.admin.session import NO_ANSWER, Session, run

T = TypeVar("T")
_PAGES = {"healthz.txt": "/healthz", "metrics.txt": "/metrics"}
_TOLD_PAGES = {"overview.json": "/api/overview", "events.json": "/api/events"}
_SECRET_FILES = ("haSecretFile",)
_README = """Support bundle of rmq-ha {version}, made at {time}.

It has no message bodies, no accounts and no secrets. Values of settings whose names tell of a
secret are hidden, and known secrets are removed from every file. Read it before you give it away.

doctor.json: findings, and what could not be looked at. brokers/: settings, figures, topics, groups,
offsets, /healthz, /metrics, and overview and events of the page. nameservers/: settings. files/:
properties files and ends of logs of the machine on which the bundle was made."""


@dataclass(frozen=True, slots=True)
class BundleOptions:
    """
    The parts of a bundle.

    :ivar scope: what doctor looks at.
    :ivar configs: properties files on this machine.
    :ivar logs: log files on this machine.
    :ivar log_bytes: how many bytes of the end of each log.
    :ivar page_token: the `pageToken` of the servers, for overview and events; empty: none.
    """

    scope: DoctorScope
    configs: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    log_bytes: int = 1 << 20
    page_token: str = ""


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--on",
    "which",
    default="",
    metavar="BROKER|CLUSTER|HOST:PORT",
    help="Ask these brokers only.",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    help="Add this properties file of this machine, without secrets; repeatable.",
)
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    help="Add the end of this log file of this machine; repeatable.",
)
@click.option(
    "--log-bytes",
    type=click.IntRange(1, 4 << 20),
    default=1 << 20,
    show_default=True,
    help="Bytes of the end of each log.",
)
@click.option(
    "--page-token",
    envvar="RMQHA_PAGE_TOKEN",
    help="The servers' pageToken, for the page's events. Default: the environment's "
    "RMQHA_PAGE_TOKEN.",
)
@common_options
def bundle(
    file: str,
    which: str,
    configs: tuple[str, ...],
    logs: tuple[str, ...],
    log_bytes: int,
    page_token: str | None,
) -> None:
    """
    Write an archive FILE (.tar.gz) with doctor's findings, and settings, figures, topics, groups,
    offsets, metrics and events of every server that answers. Logs are on their own machines: give
    --log there.

    Secrets are left out, and there are no message bodies. README.txt in the archive names all that
    is missing, and why. A FILE that exists is not overwritten. An archive is at most 64 MiB before
    compression.

    Exit code 4: a server did not answer; the archive is written all the same.
    """
    path = os.path.abspath(file)
    if RealDisk().exists(path):
        raise click.UsageError(f"{file} is there already: name another one")
    first = configs[0] if configs else ""
    scope = DoctorScope(which, local_address(), 6.0, first, "", real_surroundings("."))
    how = BundleOptions(scope, configs, logs, log_bytes, page_token or "")

    async def work(session: Session) -> int | None:
        return await write_bundle(session, path, how)

    run(work)


async def write_bundle(session: Session, path: str, how: BundleOptions) -> int | None:
    """
    Gather the parts and write the archive.

    :returns: the exit code.
    """
    now_ms = session.host.now_ms()
    own = session.options.credentials
    known = [own.secret_key, own.security_token or ""] if own is not None else []
    redactor = Redactor([*known, how.page_token])
    name = os.path.basename(path).removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    archive = BundleArchive(name, redactor, now_ms)
    maker = _BundleMaker(session, archive, redactor, how)
    maker.add_local_files()
    with session.output.progress("asking servers", None) as steps:
        facts = await maker.add_doctor(steps.advance)
        for broker in facts.brokers if facts is not None else []:
            await maker.add_broker(broker)
            steps.advance()
        for server in name_servers(session.options.namesrv):
            await maker.add_name_server(server)
    readme = _README.format(version=rmq_ha.__version__, time=time_text(now_ms))
    session.host.disk.replace(path, archive.packed(readme))
    files = len(archive.paths)
    session.output.line(
        f"{files} files in {path}",
        {"file": path, "files": files, "missing": [gap._asdict() for gap in archive.gaps]},
    )
    for gap in archive.gaps:
        session.output.note(f"missing: {gap.part}: {gap.why}")
    return NO_ANSWER if maker.has_silent_server else None


class _BundleMaker:
    """
    Adds parts to an archive, and notes the parts that could not be had.

    :ivar has_silent_server: whether a server did not answer.
    """

    def __init__(
        self, session: Session, archive: BundleArchive, redactor: Redactor, how: BundleOptions
    ) -> None:
        self.has_silent_server = False
        self._session = session
        self._archive = archive
        self._redactor = redactor
        self._how = how

    def add_local_files(self) -> None:
        """Add properties files and ends of logs of this machine."""
        disk = self._session.host.disk
        for number, path in enumerate(self._how.configs):
            text = self._read(path)
            if text is None:
                continue
            own = {item.key: item.value for item in properties.parse(text)}
            lines = [f"{key}={value}" for key, value in self._redactor.settings(own).items()]
            for key in _SECRET_FILES:
                for secret in (self._read(own[key]) or "").splitlines() if own.get(key) else ():
                    self._redactor.learn(secret)
            name = f"files/{number}-{os.path.basename(path)}"
            self._archive.add_text(name, "\n".join([f"# {path}", *lines, ""]))
        for number, path in enumerate(self._how.logs):
            try:
                size = disk.size(path)
                begin = max(0, size - self._how.log_bytes)
                files, place = files_of(path)
                text = files.read(place, begin, self._how.log_bytes).decode("utf-8", "replace")
            except OSError as error:
                self._lacks(path, error.strerror or str(error))
                continue
            if begin:
                self._archive.gaps.append(
                    BundleGap(path, f"only the last {self._how.log_bytes} of {size} bytes")
                )
                text = text.partition("\n")[2]
            name = f"files/{number}-{os.path.basename(path)}"
            self._archive.add_text(name, text, keeps_end=True)

    def _read(self, path: str) -> str | None:
        try:
            return properties.decode(self._session.host.disk.read_bytes(path))
        except (OSError, RmqHaError) as error:
            self._lacks(path, getattr(error, "strerror", None) or str(error))
            return None

    async def add_doctor(self, step: Callable[[], object]) -> ClusterFacts | None:
        """
        Add the findings.

        :returns: the facts; None if they could not be gathered.
        """
        try:
            facts = await gather(self._session, self._how.scope, step)
        except RmqHaError as error:
            self.has_silent_server = True
            self._lacks("doctor, and all brokers", str(error))
            return None
        findings = judge(facts, RULES)
        document = {
            "findings": [item._asdict() for item in findings],
            "not_looked_at": [item._asdict() for item in facts.not_looked],
        }
        self._archive.add_json("doctor.json", document)
        return facts

    async def add_broker(self, broker: BrokerFacts) -> None:
        """Add all that a broker tells."""
        address = broker.address
        folder = f"brokers/{_file_name(f'{broker.name or address}-{address}')}"
        asker = Asker(await self._session.direct())
        config = await self._ask(asker, f"settings of {address}", broker_config(address))
        if config is None:
            return  # it does not answer, or refuses this account: it would refuse the rest, too
        self._archive.add_json(f"{folder}/settings.json", self._redactor.settings(config))
        info = await self._ask(asker, f"figures of {address}", runtime_info(address))
        if info is not None:
            self._archive.add_json(f"{folder}/figures.json", info)
        topics = await self._ask(asker, f"topics of {address}", topic_configs(address))
        if topics is not None:
            rows = [to_members(item) for _, item in sorted(topics.items())]
            self._archive.add_json(f"{folder}/topics.json", rows)
        groups = await self._ask(asker, f"groups of {address}", group_configs(address))
        if groups is not None:
            rows = [to_members(item) for _, item in sorted(groups.items())]
            self._archive.add_json(f"{folder}/groups.json", rows)
        offsets = await self._ask(asker, f"offsets of {address}", consumer_offsets(address))
        if offsets is not None:
            self._archive.add_json(
                f"{folder}/offsets.json",
                {
                    key: {str(queue): at for queue, at in row.items()}
                    for key, row in offsets.items()
                },
            )
        if broker.status is None:
            return  # doctor.json says why
        for name, path in {**_PAGES, **_TOLD_PAGES}.items():
            await self._add_page(broker.status.address, path, f"{folder}/{name}")

    async def add_name_server(self, server: str) -> None:
        """Add the settings of a name server. Values of its key-value store are left out."""
        asker = Asker(await self._session.direct())
        part = f"settings of the name server {server}"
        config = await self._ask(asker, part, namesrv_config(server))
        if config is not None:
            place = f"nameservers/{_file_name(server)}/settings.json"
            self._archive.add_json(place, self._redactor.settings(config))

    async def _add_page(self, address: str, path: str, place: str) -> None:
        token = self._how.page_token
        head = f"Authorization: Bearer {token}\r\n" if token and path.startswith("/api/") else ""
        request = f"GET {path} HTTP/1.0\r\nHost: {address}\r\n{head}\r\n".encode()
        try:
            page = page_in(await exchange(self._session.host, address, request, 10.0))
        except (OSError, ValueError) as error:
            self._lacks(f"{path} of {address}", str(error))
            return
        if page.code in (401, 403):
            self._lacks(f"{path} of {address}", "it wants a pageToken: give --page-token")
        elif page.code not in (200, 503):
            self._lacks(f"{path} of {address}", f"it answers {page.code}")
        else:
            self._archive.add_text(place, page.text)

    async def _ask(self, asker: Asker, part: str, asking: Asking[T]) -> T | None:
        try:
            return await asker.run(asking)
        except RmqHaError as error:
            self.has_silent_server = True
            self._lacks(part, self._session.with_hint(str(error)))
            return None

    def _lacks(self, part: str, why: str) -> None:
        self._archive.gaps.append(BundleGap(part, why))


def _file_name(text: str) -> str:
    return "".join(char if char.isalnum() or char in "-." else "_" for char in text)
