"""`rmqha-admin store fetch`: fills an empty store from an object store (tiered storage)."""

import click

from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.host.surroundings import real_surroundings
from rmq_ha.ops.admin.options import broker_file_option, common_options
from rmq_ha.ops.admin.session import Session, run
from rmq_ha.ops.admin.store_access import load_configuration
from rmq_ha.server.broker.context import BrokerContext
from rmq_ha.server.store.log.layout import store_root
from rmq_ha.server.tiered.fetching import fetch_segments, segments_to_fetch
from rmq_ha.server.tiered.plugin import tier_settings
from rmq_ha.server.tiered.s3 import s3_objects
from rmq_ha.server.tiered.segments import SegmentKeys

_MIB = 1 << 20
_HOUR_MS = 3_600_000


@click.command("fetch")
@broker_file_option("The slave's properties file. It names the store and the object store.")
@click.option(
    "--hours",
    type=click.IntRange(min=1),
    help="Fetch the messages of so many hours. [default: fileReservedTime of the file]",
)
@common_options
def fetch(config: str, hours: int | None) -> None:
    """
    Fill an empty store with sealed files of the log from the object store.

    Then start the slave: it reads the files, and copies only the rest of the log from its master.
    The object store is the one of tiered storage: the keys tiered.bucket and so on of the file.

    Exit code 1: the store is not empty, or the object store cannot be read.
    """

    async def work(session: Session) -> None:
        fetch_store(session, config, real_surroundings("."), hours)

    run(work)


def fetch_store(
    session: Session, config: str, surroundings: Surroundings, hours: int | None
) -> None:
    """
    Fetch, and say what was fetched.

    :param config: path of the broker's properties file.
    :param hours: of how many hours; None: `fileReservedTime`.
    :raises CannotDecide: the store is not empty, or the tier has nothing for it.
    :raises TierError: the object store cannot be read.
    """
    disk, output = session.host.disk, session.output
    configuration = load_configuration(disk, config, surroundings)
    settings = tier_settings(BrokerContext(session.host, configuration, lambda _: None))
    objects = s3_objects(settings.bucket, settings.endpoint, settings.region)
    names, store = configuration.broker, configuration.store
    keys = SegmentKeys(settings.prefix, names.broker_cluster_name, names.broker_name or "")
    kept = hours or store.file_reserved_time
    segments = segments_to_fetch(objects, keys, session.host.now_ms() - kept * _HOUR_MS)
    root, log = store_root(store), store.store_path_commit_log or ""
    size = sum(segment.size for segment in segments)
    with output.progress("log, MiB", -(-size // _MIB)) as bar:
        fetch_segments(
            objects, keys, segments, disk, root, log, lambda count: bar.advance(count / _MIB)
        )
    output.table(
        f"Fetched to {root}",
        ("begin", "end", "files"),
        [(segments[0].start, segments[-1].end, len(segments))],
    )
