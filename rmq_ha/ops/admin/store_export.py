"""`rmqha-admin store export-timer`: hands a store with waiting timer messages to a Java broker."""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import click

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.host.surroundings import real_surroundings
from rmq_ha.base.model.properties import REAL_TOPIC, TIMER_OUT_MS
from rmq_ha.base.seams import Disk
from rmq_ha.base.store_format.java_timers import (
    CHECKPOINT_SIZE,
    SLOT_SIZE,
    WHEEL_SLOTS,
    JavaTimerFiles,
    WaitingRecord,
    java_timer_files,
)
from rmq_ha.base.store_format.timer_times import ms_in
from rmq_ha.base.timing.timer import next_turn
from rmq_ha.base.wire import fastjson
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.options import broker_file_option, common_options
from rmq_ha.ops.admin.session import ChangeRefused, Session, run
from rmq_ha.ops.admin.store_access import load_configuration, locked
from rmq_ha.server.store.log.layout import store_root
from rmq_ha.server.store.message_store import DefaultMessageStore

WHEEL, LOG, CHECKPOINT, METRICS = (
    "timerwheel",
    "timerlog",
    "config/timercheck",
    "config/timermetrics",
)
_FILE_SIZE = 100 << 20
_MOST_S = 600.0


@click.command(name="export-timer")
@broker_file_option("The broker's properties file. It names the store.")
@click.option(
    "--timer-log-size",
    type=click.IntRange(min=1024),
    default=_FILE_SIZE,
    show_default=True,
    metavar="BYTES",
    help="The Java broker's mappedFileSizeTimerLog.",
)
@sure_options
@common_options
def export_timer(config: str, timer_log_size: int, **sure: bool) -> None:
    """
    Write the files from which a broker of RocketMQ 5 learns which timer messages wait.

    Without them it delivers all timer messages of the log again, also those that were delivered. So
    do this last, after the broker has stopped. Then start the Java broker within seven days, with
    timerWheelEnable=true and timerPrecisionMs=1000. If rmqha-broker runs on this store once more,
    do it again.

    Older files of these names go to `setaside`.

    Exit code 1: a broker has the store open, or the store cannot be read.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> None:
        how = ExportOptions(real_surroundings("."), timer_log_size, **sure)
        await write_java_timers(session, config, how)

    run(work)


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """
    The options of the command.

    :ivar surroundings: facts of machine and process that the configuration needs.
    :ivar file_size: bytes of each timer log file: `mappedFileSizeTimerLog` of the Java broker.
    :ivar yes: whether to write without a question.
    :ivar dry_run: whether to only say what would be written.
    """

    surroundings: Surroundings
    file_size: int = _FILE_SIZE
    yes: bool = False
    dry_run: bool = False


class _TimerQueue(NamedTuple):
    """
    The timer messages of a store.

    :ivar waiting: the records that wait, in the order of their queue.
    :ivar last: the last record of the queue; None if it waits, too, or there is none.
    :ivar queue_end: queue offset behind that record.
    """

    waiting: list[WaitingRecord]
    last: WaitingRecord | None
    queue_end: int


async def write_java_timers(session: Session, config: str, how: ExportOptions) -> None:
    """
    Ask the operator, find the waiting messages, and write the files.

    :param config: path of the broker's properties file.

    :raises ChangeRefused: the broker belongs to a DLedger group, or the messages cannot be read.
    :raises StoreLocked: a broker has the store open.
    """
    disk, output = session.host.disk, session.output
    configuration = load_configuration(disk, config, how.surroundings)
    root = store_root(configuration.store)
    names = [name for name in (WHEEL, LOG, CHECKPOINT, METRICS) if disk.exists(f"{root}/{name}")]
    aside = f"{root}/setaside/timer-{session.host.now_ms()}"
    if names:
        output.say(f"{', '.join(names)} go to {aside}")
    if not is_wanted(f"Write the timer files of Java to {root}?", yes=how.yes, dry_run=how.dry_run):
        output.line(
            f"dry run: {WHEEL}, {LOG}, {CHECKPOINT}, {METRICS}",
            {"would_write": [WHEEL, LOG, CHECKPOINT, METRICS], "set_aside": names},
        )
        return
    timers = await _read_queue(session, configuration)
    with locked(disk, root):
        for name in names:
            disk.move(f"{root}/{name}", f"{aside}/{name}")
        now_ms = session.host.now_ms()
        files = java_timer_files(
            timers.waiting, timers.last, timers.queue_end, now_ms, how.file_size
        )
        _write(disk, root, files, how.file_size)
        counts = Counter(record.topic for record in timers.waiting)
        metrics = {
            "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": now_ms},
            "timingCount": {
                topic: {"count": count, "timeStamp": now_ms} for topic, count in counts.items()
            },
        }
        disk.replace(f"{root}/{METRICS}", fastjson.encode(metrics))
    output.line(
        f"{len(timers.waiting)} timer messages wait; a Java broker delivers them",
        {"waiting": len(timers.waiting), "root": root, "set_aside": names},
    )


async def _read_queue(session: Session, configuration: BrokerConfiguration) -> _TimerQueue:
    """
    Start the store as its broker would, but without deliveries; read the waiting messages; stop it.

    :raises ChangeRefused: the messages are not known after 10 minutes.
    """
    configuration.ours.timer_wheel_enable = True
    store = DefaultMessageStore(session.host, configuration)
    store.journal.role.may_begin = False
    store.load()
    with session.output.progress("reading what waits", None) as steps:
        try:
            await store.start()
            await store.dispatcher.reached_end()
            clock = session.host.clock
            until = clock.seconds() + _MOST_S
            while not store.timers.is_ready:
                if clock.seconds() > until:
                    raise ChangeRefused("the timer messages cannot be read: the log says why")
                await next_turn(clock)
                steps.advance()
            return _read(store)
        finally:
            await store.stop()


def _read(store: DefaultMessageStore) -> _TimerQueue:
    records = list(store.timers.waiting_records())
    waiting = [
        WaitingRecord(
            ms_in(record.properties, TIMER_OUT_MS) or 0,
            record.physical_offset,
            size,
            record.properties.get(REAL_TOPIC, ""),
        )
        for record, size in records
    ]
    last, end = store.timers.last_record()
    if last is None or any(record.queue_offset == last[0].queue_offset for record, _ in records):
        return _TimerQueue(waiting, None, end)
    record, size = last
    topic = record.properties.get(REAL_TOPIC, "")
    return _TimerQueue(waiting, WaitingRecord(0, record.physical_offset, size, topic), end)


def _write(disk: Disk, root: str, files: JavaTimerFiles, file_size: int) -> None:
    """Write the checkpoint last: without it Java reads none of the others."""
    for base, data in files.log.items():
        _put(disk, f"{root}/{LOG}/{base:020}", file_size, {0: data})
    _put(disk, f"{root}/{WHEEL}", WHEEL_SLOTS * SLOT_SIZE, files.slots)
    _put(disk, f"{root}/{CHECKPOINT}", CHECKPOINT_SIZE, {0: files.checkpoint})


def _put(disk: Disk, path: str, size: int, pieces: dict[int, bytes]) -> None:
    file = disk.open(path, size)
    try:
        for place, data in sorted(pieces.items()):
            file.pwrite(data, place)
        file.sync()
    finally:
        file.close()
