"""Reads the options of `verify-replica`, and runs the job."""

import click

from rmq_ha.base.errors import WrongUsage
from rmq_ha.base.host.files import absolute, is_same_directory
from rmq_ha.lake.scan.command import LEAST_WINDOW, Size
from rmq_ha.lake.scan.replica.auditing import CHECKS
from rmq_ha.lake.scan.replica.settings import WINDOW, Settings, StoreAt
from rmq_ha.lake.spark.result import JobResult
from rmq_ha.lake.spark.running import Job, job_options, plain_command, run_job
from rmq_ha.ops.checks.options import index_sizes_option
from rmq_ha.ops.offsets.places import StorePlace


@click.command("verify-replica")
@click.argument("of_master", metavar="MASTER_STORE")
@click.argument("of_slave", metavar="SLAVE_STORE", required=False)
@click.option(
    "--from",
    "start",
    type=click.IntRange(min=0),
    default=0,
    metavar="OFFSET",
    help="Compare from this physical offset on. Default: everything that both have.",
)
@click.option(
    "--window",
    type=Size(LEAST_WINDOW),
    help="Bytes to read and compare at once. Default: 16m.",
)
@click.option(
    "--check",
    "checks",
    type=click.Choice(["bytes", *CHECKS]),
    multiple=True,
    help="Besides the bytes check only this: CRCs of bodies, queues or index; repeatable. "
    "`--check bytes` checks nothing else. Default: all.",
)
@index_sizes_option
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
    checks: tuple[str, ...],
    index_sizes: tuple[int, int] | None,
    master_commit_log: str | None,
    slave_commit_log: str | None,
) -> None:
    """
    Decide whether two stores hold the same bytes.

    Compares the commit logs of a master and a slave up to the offset that both have, and each
    store's queues and index with its own log; with one store it compares only the latter. Brokers
    may run meanwhile. The job changes nothing.
    """

    def body(job: Job) -> JobResult:
        from rmq_ha.lake.spark.replica.job import verify

        master = StoreAt(_store(job, of_master), _log(master_commit_log))
        slave = master
        if of_slave is not None:
            slave = StoreAt(_store(job, of_slave), _log(slave_commit_log))
            if is_same_directory(master.uri, slave.uri):
                raise WrongUsage(
                    f"{of_master} and {of_slave} are the same directory: no pair. To check one"
                    " store against its own log give it once"
                )
        settings = Settings(master, slave, start, window or WINDOW, index_sizes=index_sizes)
        return verify(job, settings._replace(checks=frozenset(checks or CHECKS) - {"bytes"}))

    inputs = {"master": of_master, "slave": of_slave or ""}
    run_job("verify-replica", inputs, body)


def _store(job: Job, text: str) -> str:
    """:raises WrongUsage: the text names no store; a broker does not hand out its files."""
    place = job.place(text)
    if not isinstance(place, StorePlace):
        raise WrongUsage(
            f"{text}: logs are compared as files. Give the store directory (storePathRootDir): a "
            "path, or an s3://, gs:// or hdfs:// URI"
        )
    return place.uri


def _log(directory: str | None) -> str | None:
    return directory and absolute(directory)


plain_verify_replica = plain_command(verify_replica)
