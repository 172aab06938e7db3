"""
Checks the end of a simulation of a pair: after a quiet time both members must be equal and
complete.
"""

from collections.abc import Callable

from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.server.replication.classic.link import LinkFault
from rmq_ha.testing.cluster import ROOT, Life, StoreNode
from rmq_ha.testing.findings import Findings
from rmq_ha.testing.images import LogImage, LogRecord, read_queues
from tests.sim_kit.checkers import (
    check_index,
    check_numbering,
    check_queues,
    check_reading,
    compare_logs,
    last_lives,
)
from tests.sim_kit.damage import CUT, LOG, LOST, mended
from tests.sim_kit.judge import Judge
from tests.sim_kit.promises import Promises


class Ending:
    """
    Judges both members when all faults are over.

    :param judge: remembers the promises, damages and deletions.
    :ivar is_parted: whether the slave does not replicate at the end.
    """

    def __init__(self, findings: Findings, judge: Judge, now: float) -> None:
        self.is_parted = False
        self._spoilt: list[tuple[str, int, int]] = []
        self._served_to: dict[str, int] = {}
        self._findings = findings
        self._judge = judge
        self._now = now

    def _violation(self, kind: str, text: str) -> None:
        self._findings.violation(self._now, kind, text)

    def check(self, master: StoreNode, slave: StoreNode) -> None:
        """Make all checks."""
        down = [node for node in (master, slave) if node.state != "running"]
        for node in down:
            self._violation("not running", f"{node.host.name} is {node.state}")
        if down:
            return
        master_log, slave_log = self._image(master), self._image(slave)
        self._compare(master, master_log, slave, slave_log)
        records = list(master_log.records())
        self._check_node(master, master_log, records)
        if not self.is_parted:
            self._see_stopped(master, slave, records)
            self._check_node(
                slave, slave_log, records if slave_log.start == master_log.start else None
            )
        self._check_promises(records, master.crashed | slave.crashed)

    def _image(self, node: StoreNode) -> LogImage:
        """Return the log of a member, without the damage that the member has not noticed."""
        image, places = mended(node.log_image(), self._judge.damages.values())
        self._spoilt += [(node.host.name, *place) for place in places]
        return image

    def _compare(
        self, master: StoreNode, master_log: LogImage, slave: StoreNode, slave_log: LogImage
    ) -> None:
        difference = compare_logs(master_log, slave_log)
        if difference is None and master_log.end == slave_log.end:
            return
        self.is_parted = True
        reason = self._why_out(master, master_log, slave, slave_log, difference)
        if reason:
            self._findings.hazard(self._now, "stays-out", reason)
        elif difference is not None:
            self._violation("diverged", f"the logs differ from {difference} on")
        else:
            text = f"the master's log ends at {master_log.end}, the slave's at {slave_log.end}"
            self._violation("not caught up", text)

    def _why_out(
        self,
        master: StoreNode,
        master_log: LogImage,
        slave: StoreNode,
        slave_log: LogImage,
        difference: int | None,
    ) -> str:
        """
        Return the reason for which the rules accept that the slave does not replicate; empty: there
        is none.
        """
        if master.host.name in self._judge.damages and slave_log.end < master_log.start:
            return f"{self._judge.damages[master.host.name]}: the slave needs what is gone"
        link = slave.replication.statistics().master
        if link is None or link.state == "following":
            return ""
        damage = self._judge.damages.get(slave.host.name)
        if damage is not None and damage.part == LOG and damage.form in (CUT, LOST):
            return f"the slave's log is damaged: {damage}"
        if master.host.name in self._judge.damages:
            return f"the master's log is damaged: {self._judge.damages[master.host.name]}"
        start, end = max(master_log.start, slave_log.start), min(master_log.end, slave_log.end)
        for place in (difference, compare_logs(master.log_image(), slave.log_image())):
            end = end if place is None else min(end, place)
        first = next((r for r in master_log.records() if r.offset >= start), None)
        if slave_log.end > start and (first is None or first.offset + first.size > end):
            return f"the two logs have not one whole record in common from {start} on"
        return ""

    def _see_stopped(self, master: StoreNode, slave: StoreNode, records: list[LogRecord]) -> None:
        """
        Check a slave that stopped before damaged bytes of its master. It has to report this,
        because it cannot know whether the master will send these bytes again. It has to serve the
        records before them.
        """
        link = slave.replication.statistics().master
        at = slave.store.journal.tail.unreadable_at
        if at is None or link is None or link.state != LinkFault.UNREADABLE.value:
            return
        for name, start, end in self._spoilt:
            hit = [r for r in records if r.offset < end and start < r.offset + r.size]
            is_common = name == slave.host.name and (master.host.name, start, end) in self._spoilt
            if is_common and hit and hit[0].offset <= at < hit[-1].offset + hit[-1].size:
                self._served_to[name] = at
                reason = f"the master's damage, too: {link.fault}"
                self._findings.hazard(self._now, "stays-out", reason)

    def _check_node(
        self, node: StoreNode, image: LogImage, records: list[LogRecord] | None = None
    ) -> None:
        name = node.host.name
        records = list(image.records()) if records is None else records
        readable = image.readable_end(records)
        lives = last_lives(records, self._judge.deletions)
        may_lack = self._may_lack(name)
        queues = read_queues(node.host.disk, f"{ROOT}/consumequeue")
        problems = {
            "unreadable": (
                None if readable == image.end else f"readable to {readable}, ends at {image.end}"
            ),
            "numbering": self._numbering(node, records),
            "reading": check_reading(node.store, lives, image, may_lack),
            "unsynced": _unsynced(node, records),
        }
        if name not in self._judge.damages and not self._spoilt:
            # else a unit may stand where it is mended when somebody reads it
            problems["queues"] = check_queues(records, lives, queues, image.start)
        if node.is_indexed and not self._judge.damages:
            problems["index"] = check_index(node.store, records)
        for kind, problem in problems.items():
            if problem is not None:
                self._violation(kind, f"{name}: {problem}")

    def _check_promises(self, records: list[LogRecord], crashed: set[Life]) -> None:
        """
        Check that every result came once, and that the master's log has the messages that the
        results promise.

        :param crashed: lives that ended in a crash; their results may be missing.
        """
        attempts = self._judge.attempts
        promises = Promises()
        for name, attempt in attempts.items():
            if attempt.fired != 1 and (attempt.fired > 1 or attempt.life not in crashed):
                self._violation("result", f"the result of {name} came {attempt.fired} times")
            promises.sent(name, attempt.asked_at)
            if attempt.status is None or attempt.status is PutMessageStatus.UNKNOWN_ERROR:
                continue
            if not attempt.status.is_stored:
                promises.refused(name)
                continue
            promises.acknowledged(name, attempt.answered_at, attempt.offset)
            if attempt.excused:
                promises.excuse([name], attempt.excused)
        present = [record.unique_id for record in records if record.unique_id in attempts]
        for breach in promises.breaches(present, "the master's log"):
            self._violation(breach.kind, breach.text)

    def _numbering(self, node: StoreNode, records: list[LogRecord]) -> str | None:
        """
        Return the fault in the queue offsets of a log; None: there is none. Broker offsets continue
        those that the log shows. So a log whose damaged offsets are consecutive, or one whose
        undamaged ones are, has no fault.
        """
        problem = check_numbering(records, self._judge.deletions)
        if problem is None or not self._spoilt:
            return problem
        return check_numbering(node.log_image().records(), self._judge.deletions)

    def _may_lack(self, name: str) -> Callable[[LogRecord], bool]:
        """
        Return a function that tells whether a machine need not serve a record: the record or its
        unit is damaged, or the machine stopped.
        """
        served_to = self._served_to.get(name)
        damage = self._judge.damages.get(name)
        ranges = [(start, end) for machine, start, end in self._spoilt if machine == name]

        def is_spoilt(record: LogRecord) -> bool:
            if served_to is not None and record.offset >= served_to:
                return True
            return any(
                record.offset < end and start < record.offset + record.size for start, end in ranges
            ) or (
                damage is not None
                and damage.spoils_unit(record.topic, record.queue_id, record.queue_offset)
            )

        return is_spoilt


def _unsynced(node: StoreNode, records: list[LogRecord]) -> str | None:
    """
    Return the fault if a record is not on the disk after the quiet time; None: all records are.
    """
    disk, directory = node.host.disk, node.log_directory
    end = records[-1].offset + records[-1].size if records else 0
    for name in disk.list_dir(directory):
        if not disk.is_safe(f"{directory}/{name}", 0, max(0, end - int(name))):
            return f"not all of {name} is on the disk, the last record ends at {end}"
    return None
