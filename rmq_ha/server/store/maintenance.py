"""The commands of administrators to a store.

Spec: remoting.md, section 7.9; store.md, section 9.3.
"""

from collections.abc import Collection
from typing import ClassVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.base.model.topics import (
    LMQ_PREFIX,
    OP_HALF_TOPIC,
    POP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_PROGRESS_TOPIC,
    TIMER_TOPIC,
)
from rmq_ha.base.seams import Host
from rmq_ha.server.store.delay.schedule import ScheduleMessageService
from rmq_ha.server.store.journal import Cleaner, Journal
from rmq_ha.server.store.log.clean import disk_ratio
from rmq_ha.server.store.log.dispatch import Dispatcher
from rmq_ha.server.store.log.setaside import TailAside
from rmq_ha.server.store.queues.deleted_queues import DeletedQueues
from rmq_ha.server.store.reading.reads import StoreReads
from rmq_ha.server.store.statistics import readable_size
from rmq_ha.server.store.timer.timers import TimerMessageService

_KEPT_TOPICS = frozenset(
    {SCHEDULE_TOPIC, OP_HALF_TOPIC, TIMER_TOPIC, TIMER_PROGRESS_TOPIC, POP_TOPIC}
)
_MOST_NAMED = 20


class StoreMaintenance(StoreReads):
    """The part of a store that cleans and cuts on command, and gives the runtime info."""

    logger: ClassVar[Logger]
    host: Host
    cleaner: Cleaner
    dispatcher: Dispatcher
    schedule: ScheduleMessageService
    timers: TimerMessageService
    deleted: DeletedQueues
    journal: Journal

    def clean_unused_topics(self, known: Collection[str]) -> int:
        """
        Delete the queues of unknown topics; the log keeps their messages.

        :param known: names of all topics.
        :returns: number of deleted queues.
        :raises StoreError: the disk refuses.
        """
        return self._remove_queues(self._unused_queues(known))

    def tell_unused_topics(self, known: Collection[str]) -> None:
        """Warn of queues that have messages of unknown topics: the topic table may be damaged."""
        table = self.queues.topic_queue_table()
        unused = sorted({key[0] for key in self._unused_queues(known) if table[key]})
        if unused:
            self.logger.warn(
                "there are queues with messages of {count} topics that topics.json does not have: "
                "{topics}; restore that file, or make the topics again, then they can be read",
                count=len(unused),
                topics=", ".join(unused[:_MOST_NAMED]),
            )

    def _unused_queues(self, known: Collection[str]) -> list[tuple[str, int]]:
        """Return the queues of unknown topics, without the store's own topics."""
        return [
            key
            for key in self.queues.topic_queue_table()
            if key[0] not in known
            and key[0] not in _KEPT_TOPICS
            and not key[0].startswith(LMQ_PREFIX)
        ]

    def clean_expired_queues(self) -> int:
        """
        Delete the queues of which the log has deleted all messages.

        :returns: number of deleted queues.
        :raises StoreError: the disk refuses.
        """
        lowest = self.log.min_offset
        if self.older is not None and self.older.min_physical_offset is not None:
            lowest = min(lowest, self.older.min_physical_offset)
        return self._remove_queues(self.queues.expired_queues(lowest))

    def remove_topics(self, topics: Collection[str]) -> int:
        """
        Delete, on a slave, the queues of topics that its master has deleted.

        Records that are not dispatched yet are kept, as the topic may have been created again.

        :returns: number of deleted queues.
        :raises StoreError: the disk refuses.
        """
        keys = [key for key in self.queues.topic_queue_table() if key[0] in topics]
        return self._remove_queues(keys, self.dispatcher.position)

    def _remove_queues(self, keys: list[tuple[str, int]], below: int | None = None) -> int:
        """
        Delete queues; return how many.

        :param below: physical offset below which records do not belong to these queues any more;
            None: the log's end.
        """
        if keys:
            self.deleted.add(keys, self.log.max_offset if below is None else below)
        for topic, queue_id in keys:
            self.queues.remove_queue(topic, queue_id)
            self.log.encoder.queue_offsets.pop((topic, queue_id), None)
        return len(keys)

    def clean_expired_files(self) -> None:
        """Have the next rounds of the cleaner delete expired files at any hour."""
        self.cleaner.clean_manually()

    def set_tail_aside(self, end: int, why: str) -> "Deferred[TailAside]":
        """
        End a slave's log at `end`; keep the rest in a folder, and never serve it.

        Do not append before this is done. A crash leaves a store that can start, cut or not.

        :param end: physical offset after the last record that the master has as well.
        :param why: the reason for people, written into the logs and into the folder.
        :returns: fires when the log may grow again; fails with StoreError. If it fails before the
            cut, nothing is changed.
        """
        return self.journal.set_aside(end, why)

    def set_all_aside(self, why: str) -> "Deferred[TailAside]":
        """
        Empty a slave's log; move its files into a folder, and never serve them.

        Queues and index are deleted, as they can be rebuilt from the files. A crash leaves a store
        that can start, with an empty log or with the older files.

        :param why: the reason for people, written into the logs and into the folder.
        :returns: see `set_tail_aside`.
        """
        return self.journal.set_all_aside(why)

    def runtime_info(self) -> dict[str, str]:
        """Return the store's part of GET_BROKER_RUNTIME_INFO; every value is a string."""
        disk, log = self.host.disk, self.log
        table = self.statistics.table(self.host.steady_ms())
        for path in log.directories:
            table[f"commitLogDiskRatio_{path}"] = str(disk_ratio(disk, path))
        table["commitLogDiskRatio"] = str(self.cleaner.log_ratio())
        table["consumeQueueDiskRatio"] = str(self.cleaner.queue_ratio())
        usage = disk.usage(log.directories[0])
        total, usable = (usage.total, usage.usable) if usage is not None else (0, 0)
        table["commitLogDirCapacity"] = (
            f"Total : {readable_size(total)}, Free : {readable_size(usable)}."
        )
        numbers = {
            "dispatchBehindBytes": self.dispatcher.bytes_behind,
            "dispatchMaxBuffer": len(log.pending),
            "pageCacheLockTimeMills": 0,
            "sendThreadPoolQueueSize": self.statistics.outcomes.waiting,
            "earliestMessageTimeStamp": self.earliest_message_time(),
            "commitLogMinOffset": log.min_offset,
            "commitLogMaxOffset": log.max_offset,
        }
        table.update({name: str(number) for name, number in numbers.items()})
        table["remainHowManyDataToFlush"] = readable_size(log.max_offset - log.flushed_offset)
        table.update(self.schedule.runtime_info())
        table.update(self.timers.runtime_info())
        return table
