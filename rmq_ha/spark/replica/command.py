"""The command `verify-replica`."""

import re
from typing import TYPE_CHECKING

import click

from rmq_ha.errors import WrongUsage
from rmq_ha.offsets.places import StorePlace
from rmq_ha.scan.replica.auditing import CHECKS
from rmq_ha.scan.replica.settings import (
    CRC32,
    DIGEST_WINDOW,
    KINDS,
    PREFIX,
    WINDOW,
    Settings,
    StoreAt,
)
from rmq_ha.spark.result import JobResult
from rmq_ha.spark.running import Job, job_options, run_job

_SIZE = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_LEAST_WINDOW = 1 << 12

if TYPE_CHECKING:
    _Sizes = click.ParamType[int]
    _Pairs = click.ParamType[tuple[int, int]]
else:  # older ones cannot be subscripted
    _Sizes = _Pairs = click.ParamType


class Size(_Sizes):
    """A number of bytes: `16m`, `64k`, `1g`."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """:raises click.BadParameter: it is none."""
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"{value!r}: write a size as 16m, 64k or 1g", param, ctx)
        return int(found[1]) * _UNITS[found[2].lower()]


class IndexSizes(_Pairs):
    """`maxHashSlotNum,maxIndexNum`."""

    name = "slots,items"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """:raises click.BadParameter: it is none."""
        found = re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", str(value))
        if found is None or not int(found[1]):
            self.fail(
                f"{value!r}: write maxHashSlotNum,maxIndexNum, as 5000000,20000000", param, ctx
            )
        return int(found[1]), int(found[2])


@click.command("verify-replica")
@click.argument("of_master", metavar="MASTER_STORE")
@click.argument("of_slave", metavar="SLAVE_STORE", required=False)
@click.option(
    "--from",
    "start",
    type=click.IntRange(min=0),
    default=0,
    metavar="OFFSET",
    help="Physical offset from which on everything is looked at; default: all that both have.",
)
@click.option(
    "--window",
    type=Size(),
    default=None,
    help="Bytes that are read and compared at once, or for which one digest stands; default: 16m,"
    " for digests 64k.",
)
@click.option(
    "--digest",
    type=click.Choice(["bytes", *KINDS]),
    default="bytes",
    show_default=True,
    help="Of each window, for --digests; two stores are always compared byte by byte.",
)
@click.option(
    "--digests",
    "directory",
    metavar="DIR",
    help="Write the digests of one store there, as Parquet. Where the other store is, give"
    " digests:DIR in the place of this one.",
)
@click.option(
    "--check",
    "checks",
    type=click.Choice(["bytes", *CHECKS]),
    multiple=True,
    help="Besides the bytes look only at this: CRCs of bodies, queues, index; as often as needed."
    " --check bytes: at nothing else. Default: at all.",
)
@click.option(
    "--index-sizes",
    type=IndexSizes(),
    metavar="SLOTS,ITEMS",
    help="maxHashSlotNum and maxIndexNum of the brokers, if they are not the default.",
)
@click.option(
    "--master-commit-log", metavar="DIR", help="storePathCommitLog of the master, if it is set."
)
@click.option(
    "--slave-commit-log", metavar="DIR", help="storePathCommitLog of the slave, if it is set."
)
@job_options
def verify_replica(
    of_master: str,
    of_slave: str | None,
    start: int,
    window: int | None,
    digest: str,
    directory: str | None,
    checks: tuple[str, ...],
    index_sizes: tuple[int, int] | None,
    master_commit_log: str | None,
    slave_commit_log: str | None,
) -> None:
    """
    Do two stores hold the same, to the byte?

    Compares the commit logs of a master and a slave up to the offset that both have, and each
    store's queues and index with its own log; of one store only that. Brokers may run meanwhile.
    Nothing is changed.
    """

    stores = [
        StoreAt(text, log)
        for text, log in ((of_master, master_commit_log), (of_slave, slave_commit_log))
        if text is not None
    ]

    def body(job: Job) -> JobResult:
        from rmq_ha.host.files import is_same_directory
        from rmq_ha.spark.replica.job import verify

        if window is not None and window < _LEAST_WINDOW:
            raise WrongUsage(f"--window {window}: at least 4k")
        if directory is not None or PREFIX in f"{of_master[:8]} {(of_slave or '')[:8]}":
            kind = CRC32 if digest == "bytes" else digest
            return _digests(job, stores, directory, window or DIGEST_WINDOW, kind, start)
        master = StoreAt(_store(job, of_master), master_commit_log)
        slave = master
        if of_slave is not None:
            slave = StoreAt(_store(job, of_slave), slave_commit_log)
            if is_same_directory(master.uri, slave.uri):
                raise WrongUsage(
                    f"{of_master} and {of_slave} are the same directory: no pair. To check one"
                    " store against its own log give it once"
                )
        settings = Settings(
            master,
            slave,
            start,
            window or WINDOW,
            checks=frozenset(checks or CHECKS) - {"bytes"},
            index_sizes=index_sizes,
        )
        return verify(job, settings)

    # Java has little to do here, the workers all: time to optimise it would be taken from them.
    inputs = {"master": of_master, "slave": of_slave or ""}
    run_job("verify-replica", inputs, body)


def _digests(
    job: Job, stores: list[StoreAt], directory: str | None, window: int, kind: str, start: int
) -> JobResult:
    from rmq_ha.spark.replica.digests import compare_digests, write_digests

    given = [at.uri.startswith(PREFIX) for at in stores]
    if directory is not None:
        if len(stores) != 1 or any(given):
            raise WrongUsage("--digests DIR writes the digests of one store: give just that")
        at = stores[0]._replace(uri=_store(job, stores[0].uri))
        return write_digests(job.spark, at, directory, window, kind, start)
    if sorted(given) != [False, True]:
        raise WrongUsage(f"give one store and one {PREFIX}DIR, in the order master, slave")
    theirs = given.index(True)
    at = stores[1 - theirs]
    return compare_digests(
        job.spark,
        at._replace(uri=_store(job, at.uri)),
        stores[theirs].uri.removeprefix(PREFIX),
        is_master=theirs == 1,
        start=start,
    )


def _store(job: Job, text: str) -> str:
    """:raises WrongUsage: it is no store; a broker does not hand out its files."""
    place = job.place(text)
    if not isinstance(place, StorePlace):
        raise WrongUsage(
            f"{text}: logs are compared as files. Give the store directory (storePathRootDir): a "
            "path, or an s3://, gs:// or hdfs:// URI"
        )
    return place.uri
