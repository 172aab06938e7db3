"""Looks at this machine: a broker's properties file, its certificates and its store."""

from collections.abc import Iterator, Sequence

from rmq_ha.base.config import properties
from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.load import load_broker, render
from rmq_ha.base.config.plans import port_plan
from rmq_ha.base.config.settings import DoubtfulValue
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError, ProtocolViolation
from rmq_ha.base.seams import Disk
from rmq_ha.base.tls.files import TlsFiles, certificate_names, certificate_text
from rmq_ha.base.tls.options import TlsOptions
from rmq_ha.base.wire.fastjson import parse
from rmq_ha.ops.admin.doctor.facts import CertificateFacts, ClusterFacts, NotLooked
from rmq_ha.ops.admin.doctor.local import LocalFacts

_TLS = ("tls.server", "tls.client", "tls.ha")
_TABLES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")


def look_at_file(
    facts: ClusterFacts,
    disk: Disk,
    path: str,
    surroundings: Surroundings,
    overrides: Sequence[tuple[str, str]] = (),
) -> None:
    """
    Read a properties file as a broker does, then look at the files and the store that it names.
    """
    local = facts.local = LocalFacts(file=path)
    try:
        text = properties.decode(disk.read_bytes(path))
        local.settings = {item.key: item.value.strip() for item in properties.parse(text, path)}
        local.settings.update(overrides)
        loaded = load_broker(text, surroundings, name=path, overrides=overrides)
    except OSError as error:
        local.error = error.strerror or str(error)
        return
    except ConfigurationError as error:
        local.error = str(error)
        return
    own = loaded.configuration
    local.unknown = [notice.text for notice in loaded.notices if notice.is_unknown]
    local.doubtful = [notice.text for notice in loaded.notices if isinstance(notice, DoubtfulValue)]
    lines = dict(line.partition("=")[::2] for line in render(own))
    local.rendered = {key: lines[key] for key in local.settings if key in lines}
    local.name_servers = own.broker.namesrv_addr or ""
    if own.controlled.enable_controller_mode:
        local.controllers = tuple(own.controlled.controllers)
    local.broker_name = own.broker.broker_name or ""
    local.broker_id = own.broker.broker_id
    local.role = own.store.broker_role.value
    local.bind_address = own.ours.bind_address
    local.ports = [(item.port, item.purpose) for item in port_plan(own)]
    local.address = f"{own.broker.broker_ip1}:{own.server.listen_port}"
    _look_at_certificates(facts, disk, own)
    look_at_store(facts, disk, own.store.store_path_root_dir or "", own)


def _look_at_certificates(facts: ClusterFacts, disk: Disk, own: BrokerConfiguration) -> None:
    for prefix in _TLS:
        try:
            files = TlsFiles(TlsOptions(own.plugin_options, disk.read_bytes), disk.read_bytes)
            pair = files.key_pair(prefix)
            shown = [] if pair is None else [pair.certificate, *pair.chain]
            trusted = files.trust_root(prefix) or []
        except ConfigurationError as error:
            facts.not_looked.append(NotLooked(f"certificates of {prefix}", str(error)))
            continue
        for key, certificates in (
            (f"{prefix}.certPath", shown),
            (f"{prefix}.trustCertPath", trusted),
        ):
            facts.certificates += [
                CertificateFacts(
                    key,
                    certificate_text(item),
                    item.not_valid_before_utc,
                    item.not_valid_after_utc,
                    certificate_names(item),
                )
                for item in certificates
            ]


def look_at_store(
    facts: ClusterFacts, disk: Disk, path: str, own: BrokerConfiguration | None = None
) -> None:
    """
    Look at a store, whose broker may run. Of its files only the tables are read, which a broker
    replaces as a whole.

    :param own: the settings of the store's broker; None: only the directory is known, so the
        defaults hold.
    """
    local = facts.local = facts.local or LocalFacts()
    local.store, local.is_there = path, disk.is_dir(path)
    log = f"{path}/commitlog"
    if own is not None:
        local.file_size = own.store.mapped_file_size_commit_log
        log = own.store.store_path_commit_log or log
    if not local.is_there:
        return
    try:
        if own is None or not own.store.enable_dleger_commit_log:
            folders = [item.strip() for item in log.split(",") if item.strip()]
            local.log_files = sum(len(disk.list_dir(item)) for item in folders)
            local.queue_topics = len(disk.list_dir(f"{path}/consumequeue"))
        local.has_abort = disk.exists(f"{path}/abort")
        local.set_aside = disk.list_dir(f"{path}/setaside")
        local.damaged_tables = list(_damaged_tables(disk, f"{path}/config"))
        usage = disk.usage(path)
    except OSError as error:
        facts.not_looked.append(NotLooked(f"all of {path}", error.strerror or str(error)))
        return
    local.free = None if usage is None else usage.usable


def _damaged_tables(disk: Disk, folder: str) -> Iterator[str]:
    for name in _TABLES:
        path = f"{folder}/{name}"
        if not disk.exists(path):
            continue
        try:
            parse(disk.read_bytes(path), None)
        except ProtocolViolation:
            yield path
