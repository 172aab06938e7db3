"""`rmqha-admin store fetch`: fills an empty store from an object store (tiered storage)."""

from collections.abc import Callable
from zlib import crc32

import click

from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.host.surroundings import real_surroundings
from rmq_ha.base.seams import Disk
from rmq_ha.ops.admin.options import broker_file_option, common_options
from rmq_ha.ops.admin.session import Session, run
from rmq_ha.ops.admin.store_access import load_configuration
from rmq_ha.ops.offline.backup import StoreDirectories, must_be_empty, must_have_room
from rmq_ha.server.broker.context import BrokerContext
from rmq_ha.server.store.log.files import file_name
from rmq_ha.server.store.log.layout import store_root
from rmq_ha.server.tiered.catalogue import read_segment
from rmq_ha.server.tiered.objects import ObjectStore, TierError
from rmq_ha.server.tiered.plugin import tier_settings
from rmq_ha.server.tiered.s3 import s3_objects
from rmq_ha.server.tiered.segments import SegmentKeys, TierSegment
from rmq_ha.server.tiered.uploading import PART

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
    root = store_root(store)
    log = store.store_path_commit_log or f"{root}/commitlog"
    new_store = StoreDirectories(root, log, store.mapped_file_size_commit_log)
    size = sum(segment.size for segment in segments)
    with output.progress("log, MiB", -(-size // _MIB)) as bar:
        fetch_segments(
            objects, keys, segments, disk, new_store, lambda count: bar.advance(count / _MIB)
        )
    output.table(
        f"Fetched to {root}",
        ("begin", "end", "files"),
        [(segments[0].start, segments[-1].end, len(segments))],
    )


def segments_to_fetch(objects: ObjectStore, keys: SegmentKeys, since_ms: int) -> list[TierSegment]:
    """
    Return the newest segments of the tier that follow each other.

    :param since_ms: segments whose last message is older are left out, but for the newest one.
    :raises CannotDecide: the tier has no segments of this broker.
    :raises TierError: the object store cannot be read.
    """
    chosen: list[TierSegment] = []
    for start in reversed(keys.starts(objects.keys(keys.segments))):
        segment = read_segment(objects, keys, start)
        if chosen and (segment.end != chosen[0].start or segment.last_ms < since_ms):
            break
        chosen.insert(0, segment)
    if not chosen:
        raise CannotDecide(
            f"the object store has nothing below {keys.segments}: are tiered.bucket, "
            "tiered.prefix, brokerClusterName and brokerName those of the master?"
        )
    return chosen


def fetch_segments(
    objects: ObjectStore,
    keys: SegmentKeys,
    segments: list[TierSegment],
    disk: Disk,
    store: StoreDirectories,
    tell: Callable[[int], object],
) -> None:
    """
    Write the log files of segments into an empty store. Its first start reads every record, and
    builds queues and index.

    :param store: the new store's directories, which must be empty.
    :param tell: called with the number of bytes that were just written.
    :raises CannotDecide: the directories are not empty, or the disk has no room.
    :raises TierError: an object cannot be read, or has other bytes than it should.
    """
    must_be_empty(disk, store, "fetch")
    must_have_room(disk, store, "object store", sum(segment.size for segment in segments))
    for segment in segments:
        file = disk.open(f"{store.log}/{file_name(segment.start)}", segment.size)
        crc = 0
        try:
            for position in range(0, segment.size, PART):
                data = objects.get(keys.log(segment.start), position, PART)
                file.pwrite(data, position)
                crc = crc32(data, crc)
                tell(len(data))
            file.sync()
        finally:
            file.close()
        if crc != segment.crc:
            disk.remove(f"{store.log}/{file_name(segment.start)}")
            raise TierError(
                f"{keys.log(segment.start)} has not the CRC-32 that its segment names: remove "
                f"{store.log}, and fetch from a good copy of the object, or let the slave copy the "
                "log from its master"
            )
    # With an empty next file the log ends at the end of the last segment. Else it would end before
    # the padding there, and the slave would ask its master for a file that may be deleted.
    last = segments[-1]
    disk.open(f"{store.log}/{file_name(last.end)}", last.size).close()
    # The mark of a crash makes the start read all of the log, and trust no other file.
    disk.replace(f"{store.root}/abort", b"")
