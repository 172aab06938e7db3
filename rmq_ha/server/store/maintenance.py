"""What administrators ask of a store.

Spec: remoting.md, section 7.9; store.md, section 9.3.
"""

from collections.abc import Collection
from typing import ClassVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.base.model.topics import LMQ_PREFIX, OP_HALF_TOPIC, SCHEDULE_TOPIC
from rmq_ha.base.seams import Host
from rmq_ha.server.store.delay.schedule import ScheduleMessageService
from rmq_ha.server.store.journal import Cleaner, Journal
from rmq_ha.server.store.log.clean import disk_ratio
from rmq_ha.server.store.log.dispatch import Dispatcher
from rmq_ha.server.store.log.setaside import TailAside
from rmq_ha.server.store.queues.deleted_queues import DeletedQueues
from rmq_ha.server.store.reading.reads import StoreReads
from rmq_ha.server.store.statistics import readable_size

_KEPT_TOPICS = frozenset({SCHEDULE_TOPIC, OP_HALF_TOPIC})
_MOST_NAMED = 20


class StoreMaintenance(StoreReads):
    """Cleaning and cutting on command, and the runtime info."""

    logger: ClassVar[Logger]
    host: Host
    cleaner: Cleaner
    dispatcher: Dispatcher
    schedule: ScheduleMessageService
    deleted: DeletedQueues
    journal: Journal

    def clean_unused_topics(self, known: Collection[str]) -> int:
        """
        Delete the queues of topics that nobody knows any more; the log keeps their messages.

        :param known: names of all topics.
        :returns: how many queues went.
        :raises StoreError: the disk refuses.
        """
        return self._remove_queues(self._unused(known))

    def tell_unused_topics(self, known: Collection[str]) -> None:
        """Warn of queues with messages whose topic nobody knows: its table may be damaged."""
        table = self.queues.topic_queue_table()
        unused = sorted({key[0] for key in self._unused(known) if table[key]})
        if unused:
            self.logger.warn(
                "there are queues with messages of {count} topics that topics.json does not have: "
                "{topics}; restore that file, or make the topics again, then they can be read",
                count=len(unused),
                topics=", ".join(unused[:_MOST_NAMED]),
            )

    def _unused(self, known: Collection[str]) -> list[tuple[str, int]]:
        """Queues of topics that are not known, and not the store's own."""
        return [
            key
            for key in self.queues.topic_queue_table()
            if key[0] not in known
            and key[0] not in _KEPT_TOPICS
            and not key[0].startswith(LMQ_PREFIX)
        ]

    def clean_expired_queues(self) -> int:
        """
        Delete the queues of whose messages the log has none any more.

        :returns: how many queues went.
        :raises StoreError: the disk refuses.
        """
        return self._remove_queues(self.queues.expired_queues(self.log.min_offset))

    def remove_topics(self, topics: Collection[str]) -> int:
        """
        On a slave: delete the queues of topics that its master has deleted.

        Records that are not dispatched yet may be of the topic's next life.

        :returns: how many queues went.
        :raises StoreError: the disk refuses.
        """
        keys = [key for key in self.queues.topic_queue_table() if key[0] in topics]
        return self._remove_queues(keys, self.dispatcher.position)

    def _remove_queues(self, keys: list[tuple[str, int]], below: int | None = None) -> int:
        """:param below: records of the log below that are none of theirs any more; None: all."""
        if keys:
            self.deleted.add(keys, self.log.max_offset if below is None else below)
        for topic, queue_id in keys:
            self.queues.remove_queue(topic, queue_id)
            self.log.encoder.queue_offsets.pop((topic, queue_id), None)
        return len(keys)

    def clean_expired_files(self) -> None:
        """The next rounds of the cleaner delete what is expired, whatever the hour."""
        self.cleaner.clean_manually()

    def set_tail_aside(self, end: int, why: str) -> "Deferred[TailAside]":
        """
        A slave's log ends at `end` from now on; what lay behind it is kept, and never served.

        Nothing may be appended until it is done. A crash leaves a store that starts, cut or not.

        :param end: physical offset behind the last record that the master has as well.
        :param why: for people, in the log and in the folder.
        :returns: fires when the log may grow again; fails with StoreError, if before the cut then
            with everything as it was.
        """
        return self.journal.set_aside(end, why)

    def set_all_aside(self, why: str) -> "Deferred[TailAside]":
        """
        A slave's log is empty from now on; its files are moved into a folder, and never served.

        Queues and index are deleted: they can be built from the log's files. A crash leaves a store
        that starts, with an empty log or with the older files of it.

        :param why: for people, in the log and in the folder.
        :returns: as `set_tail_aside`.
        """
        return self.journal.set_all_aside(why)

    def runtime_info(self) -> dict[str, str]:
        """The store's part of GET_BROKER_RUNTIME_INFO; every value a string."""
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
            "dispatchBehindBytes": self.dispatcher.behind,
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
        return table
