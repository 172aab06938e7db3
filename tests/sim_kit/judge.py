"""
Remembers the promises that a pair gave to clients, and checks whether the pair keeps them.

An operator of a pair may lose these messages, and no others:

- A message whose put did not end with PUT_OK, and with ASYNC_MASTER any: when the slave is made the
  master and has not got it, or when the master comes back without it.
- A message of a SYNC_MASTER that ended with PUT_OK: when the power of both machines failed since,
  under ASYNC_FLUSH; or when a master that lost its unsynced tail (ASYNC_FLUSH) is started as the
  master again, while its slave has the message. An operator who wants to keep it makes the slave
  the master.
- With SYNC_FLUSH, PUT_OK and a master that stays the master: nothing.
- A message on a machine whose disk was damaged at the place of the message.

A member does not replicate, and says so, if the two logs have no whole record in common.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from rmq_ha.base.model.status import BrokerRole, FlushDiskType, PutMessageStatus
from rmq_ha.testing.cluster import ROOT, Life, StoreNode
from rmq_ha.testing.findings import Findings
from rmq_ha.testing.images import LogImage, LogRecord, parse_record
from rmq_ha.testing.workload import Attempt
from tests.sim_kit.damage import Damage, mended

SERVED_WITHIN_SECONDS = 1.0
READ_EVERY = 8
"""One in this many acknowledged messages is read on the slave, as a consumer does."""
HAMPERED_SECONDS = 3.0
"""A slave whose disk was full or slow may serve a message this much later."""
LOOKS_BACK = 8
"""A store has noted its flushed offset of this many looks ago."""


class Judge:
    """
    Is told of the events of two machines and their messages, and notes broken promises.

    :param nodes: the two machines by name.
    :param role: the role of the master, SYNC_MASTER or ASYNC_MASTER.
    :param leader: returns the name of the machine that is, or will be, the master.
    :ivar attempts: all attempts by unique id; each producer adds its own.
    :ivar damages: the damage of each machine's store, by machine.
    :ivar deletions: by topic: the end of the master's log when the topic was last deleted.
    :ivar parts: by machine: its role in its present or last life.
    :ivar lost_power: by machine: the time at which its power last failed.
    :ivar forced: the machine that was made master because the other one's store is damaged.
    """

    def __init__(
        self,
        findings: Findings,
        nodes: dict[str, StoreNode],
        role: BrokerRole,
        flush: FlushDiskType,
        leader: Callable[[], str],
        now: Callable[[], float],
        random: Random,
    ) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.damages: dict[str, Damage] = {}
        self.deletions: dict[str, int] = {}
        self.lost_power: dict[str, float] = {}
        self.forced: str | None = None
        self._findings = findings
        self._nodes = nodes
        self._is_sync = role is BrokerRole.SYNC_MASTER
        self._flush = flush
        self._leader = leader
        self._now = now
        self._random = random
        self._flushed: dict[str, int] = {}
        self._behind_damage: dict[str, int] = {}
        self._undamaged: dict[str, tuple[float, LogImage]] = {}
        self._hampered: dict[str, float] = {}
        self._safe: dict[str, deque[int]] = {name: deque([0], LOOKS_BACK) for name in nodes}
        self.parts: dict[str, BrokerRole] = {}
        self._to_serve: list[tuple[float, Attempt, Life]] = []

    def _violation(self, kind: str, text: str) -> None:
        self._findings.violation(self._now(), kind, text)

    def _hazard(self, kind: str, text: str) -> None:
        self._findings.hazard(self._now(), kind, text)

    def _other(self, machine: str) -> str:
        return next(name for name in self._nodes if name != machine)

    # Answers

    def answered(self, attempt: Attempt) -> None:
        """
        Judge an answer: after PUT_OK of a SYNC_MASTER the slave must have the same bytes now, and
        serve them soon.
        """
        if attempt.status is None or not attempt.status.is_stored:
            return
        machine = attempt.life[0]
        attempt.held_by.add(machine)
        if attempt.offset < self.deletions.get(attempt.topic, 0):
            attempt.excused = "the topic was deleted"
        if attempt.status is not PutMessageStatus.PUT_OK or not self._is_sync:
            self._see_late(machine, attempt)
            return
        other = self._other(machine)
        if self.lost_power.get(other, -1.0) > attempt.asked_at:
            return
        attempt.held_by.add(other)
        slave = self._nodes[other]
        master = self._nodes[machine]
        if master.life == attempt.life and master.state == "running":
            message = _read(master, attempt.offset, attempt.end)
            same = any(held == message for held in self._held(slave, attempt))
        else:
            key, size = attempt.unique_id.encode(), attempt.end - attempt.offset
            same = any(key in held and len(held) >= size for held in self._held(slave, attempt))
        if not same:
            text = f"{attempt.unique_id} ({attempt.offset} to {attempt.end}) ended PUT_OK"
            self._violation("acknowledged-without-replica", text)
        elif slave.state == "running":
            due = self._now() + SERVED_WITHIN_SECONDS
            self._to_serve.append((due, attempt, slave.life))

    def _held(self, slave: StoreNode, attempt: Attempt) -> Iterator[bytes]:
        """
        Yield the bytes that a slave may have had when it confirmed an attempt.

        These are its present bytes. For a message that was sent before the slave was damaged they
        are also its former bytes, because its report may have been on the way. If the end of the
        record is not known, they are its whole log.
        """
        name = slave.host.name
        is_placed = attempt.end > attempt.offset  # else the answer came from one that is down now
        if is_placed:
            start, data = attempt.offset, _read(slave, attempt.offset, attempt.end)
        else:
            image = slave.log_image()
            start, data = image.start, image.data
        # What it did not notice it confirms with the checksum of what lies behind.
        damage = self.damages.get(name)
        yield (
            data
            if damage is None or not damage.is_in(slave.log_image())
            else damage.mend(data, start)
        )
        damaged_at, before = self._undamaged.get(name, (-1.0, LogImage(0, b"", 0, 0)))
        if damaged_at >= attempt.asked_at:
            yield before.slice(attempt.offset, attempt.end) if is_placed else before.data

    def _see_late(self, machine: str, attempt: Attempt) -> None:
        """
        Excuse a message that only a former master has, whose answer promised nothing about its
        slave.
        """
        leader = self._leader()
        held = self._nodes[leader].log_image().data if machine != leader else b""
        if machine != leader and attempt.unique_id.encode() not in held:
            attempt.excused = f"{leader} leads without it"

    def look(self) -> None:
        """Check that the slave serves messages that were acknowledged some time ago."""
        for name, node in self._nodes.items():
            if node.state == "running":
                self._safe[name].append(node.store.log.flushed_offset)
            if node.host.disk.is_full or node.host.worker.delay != node.host.worker.usual_delay:
                self._hampered[name] = self._now()
        now, waiting = self._now(), self._to_serve
        done = 0
        for due, attempt, life in waiting:
            if due > now:
                break
            done += 1
            node = self._nodes[life[0]]
            if attempt.excused or node.life != life or node.state != "running":
                continue
            if self._is_behind_damage(attempt):
                continue
            if now < self._hampered.get(node.host.name, -HAMPERED_SECONDS) + HAMPERED_SECONDS:
                waiting.append((now + HAMPERED_SECONDS, attempt, life))
                continue
            problem = self._not_served(node, attempt)
            if problem:
                self._violation("acknowledged-not-served", f"{attempt.unique_id}: {problem}")
        del waiting[:done]

    def _is_behind_damage(self, attempt: Attempt) -> bool:
        """
        Return whether a damage lies before the end of a message. If no checksum of the master's log
        shows its damage, the slave sets its own log aside from there on, and fetches it again.
        """
        ranges = [damage.log_range for damage in self.damages.values()]
        return any(start < attempt.end for start, end in ranges if start < end)

    def _not_served(self, node: StoreNode, attempt: Attempt) -> str:
        position = node.store.dispatcher.position
        if position < attempt.end and node.store.log.max_offset >= attempt.end:
            return f"{node.host.name} has it up to {attempt.end}, its queues up to {position}"
        if self._random.randrange(READ_EVERY):
            return ""
        pulled = node.store.get_message(
            "judge", attempt.topic, attempt.queue_id, attempt.queue_offset, 1, None
        )
        if pulled is None or not pulled.messages:
            status = None if pulled is None else pulled.status
            return f"{node.host.name} says {status} at queue offset {attempt.queue_offset}"
        data = pulled.messages[0]
        record = parse_record(data, 0, len(data))
        if record is None or record.unique_id != attempt.unique_id:
            return f"{node.host.name} gives {record} in its place"
        return ""

    # Machines

    def crashes(self, machine: str, power: bool) -> None:
        """Note the flushed end of a machine that is about to stop at once."""
        node = self._nodes[machine]
        if power:
            self.lost_power[machine] = self._now()
            if node.store is not None and node.state != "down":
                self._flushed[machine] = _whole(node.log_image(), node.store.log.flushed_offset)

    def recovered(self, machine: str, part: BrokerRole, before: LogImage) -> None:
        """
        Judge the messages that a machine lost when it came back.

        :param part: its role from now on.
        :param before: its log as it was before the store was opened.
        """
        node = self._nodes[machine]
        end = node.store.log.max_offset
        records = list(before.records())
        whole = records[-1].offset + records[-1].size if records else 0
        if end < whole and machine not in self.damages:
            text = f"{machine} came back with {end}, but its records were whole up to {whole}"
            self._violation("recovery", text)
        flushed = self._flushed.pop(machine, 0)
        if end < flushed and machine not in self.damages and not _was_set_aside(node, end):
            text = f"{machine} came back with {end}, but called {flushed} flushed"
            self._violation("flushed-and-lost", text)
        held = {r.unique_id for r in self._whole(before) if r.offset + r.size <= end}
        self._take_stock(machine, held)
        was = self.parts.get(machine)
        self.parts[machine] = part
        if part is not BrokerRole.SLAVE:
            self._check_behind(machine, end)
            self._see_ahead(machine, end)
            self._leads(machine, "promoted" if was is BrokerRole.SLAVE else "came back")

    def _whole(self, log: LogImage) -> Iterator[LogRecord]:
        """
        Yield the whole records of a log, including those after a damage that no member noticed.
        """
        image, places = mended(log, self.damages.values())
        if places:  # which may be where the log seemed to end
            image = replace(image, end=image.start + len(image.data))
        for record in image.records():
            behind = record.offset + record.size
            if not any(start < behind and record.offset < end for start, end in places):
                yield record

    def _take_stock(self, machine: str, held: set[str]) -> None:
        """
        Compare the messages that a machine has after it came back with those that it should have.
        """
        for attempt in self.attempts.values():
            if attempt.status is None or not attempt.status.is_stored:
                continue
            if attempt.unique_id in held:
                attempt.held_by.add(machine)
            elif machine in attempt.held_by:
                attempt.held_by.discard(machine)
                if not attempt.excused:
                    self._blame_loss(machine, attempt)

    def _blame_loss(self, machine: str, attempt: Attempt) -> None:
        assert attempt.status is not None
        text = f"{machine} lost {attempt.unique_id}, which ended {attempt.status.name}"
        if machine in self.damages:
            self._hazard("lost-by-damage", text)
        elif self.lost_power.get(machine, -1.0) < attempt.asked_at:
            self._violation("lost-by-kill", text)
        elif (
            machine == attempt.life[0]
            and attempt.status is PutMessageStatus.PUT_OK
            and self._flush is FlushDiskType.SYNC_FLUSH
        ):
            self._violation("lost-after-flush", text)

    def _leads(self, machine: str, how: str) -> None:
        """Judge the messages that a new master lacks, and excuse them from now on."""
        other = self._other(machine)
        for attempt in self.attempts.values():
            if attempt.status is None or not attempt.status.is_stored or attempt.excused:
                continue
            if machine in attempt.held_by:
                continue
            attempt.excused = f"{machine} {how} without it"
            if attempt.status is not PutMessageStatus.PUT_OK or not self._is_sync:
                continue
            text = f"{attempt.unique_id}: {attempt.excused}"
            if how == "promoted":
                if self.lost_power.get(machine, -1.0) < attempt.asked_at and not (
                    machine in self.damages or machine == self.forced
                ):
                    self._violation("promoted-without", text)
            elif self.lost_power.get(other, -1.0) < attempt.asked_at and other not in self.damages:
                self._check_other_copy(other, attempt)

    def _check_other_copy(self, other: str, attempt: Attempt) -> None:
        """Check that the slave has a message with PUT_OK that the master lost."""
        if other in attempt.held_by:
            image = self._nodes[other].log_image()
            if attempt.unique_id.encode() in image.data:
                return
        text = f"{attempt.unique_id} was acknowledged, and the loss of one machine lost it"
        self._violation("lost-with-one-machine", text)

    def _see_ahead(self, machine: str, end: int) -> None:
        other = self._nodes[self._other(machine)]
        ahead = other.log_image().end
        if ahead > end and other.boots:
            text = f"the master {machine} leads with {end}, the slave has {ahead}"
            self._hazard("slave-ahead", text)

    def damaged(self, machine: str, damage: Damage, good: LogImage) -> None:
        """
        Note the damage of a stopped machine's store.

        :param good: the machine's log before the damage.
        """
        self.damages[machine] = damage
        self._undamaged[machine] = self._now(), good
        self._hazard("damage", f"{machine}: {damage}")
        start, end = damage.log_range
        if start < self._safe[machine][0]:
            behind = [record for record in good.records() if record.offset >= end]
            self._behind_damage[machine] = behind[-1].offset + behind[-1].size if behind else 0

    def _check_behind(self, machine: str, end: int) -> None:
        """
        Check that a master that starts with a damaged log keeps the whole records after the damage.

        A damage after the bytes that were flushed some time ago is not checked: it may look like
        the damage of a crash.
        """
        good = self._behind_damage.pop(machine, 0)
        if end < good:
            text = f"{machine} leads with {end}, and had whole records up to {good}"
            self._violation("wiped-behind-damage", text)

    def refused(self, machine: str, error: Exception) -> bool:
        """
        Judge the refusal of a machine to start.

        :returns: whether an operator has to replace its store.
        """
        text = f"{machine} cannot load its store: {type(error).__name__}: {error}"
        if self._nodes[machine].host.disk.is_full:
            self._hazard("full-disk", text)
        elif machine in self.damages or self._has_fetched_damage(machine):
            self._hazard("refused-damage", text)
            return True
        else:
            self._violation("load", text)
        return False

    def _has_fetched_damage(self, machine: str) -> bool:
        """
        Return whether the machine has fetched the damaged bytes of another one, which had not
        noticed its damage.
        """
        image = self._nodes[machine].log_image()
        return any(damage.is_in(image) for damage in self.damages.values())

    def wiped(self, machine: str) -> None:
        """
        Note that an operator moved a machine's store away, so that it begins with an empty one.
        """
        for attempt in self.attempts.values():
            attempt.held_by.discard(machine)
        self.lost_power[machine] = self._now()  # as if: what it had is not there any more
        self._flushed.pop(machine, None)
        self.damages.pop(machine, None)
        self._behind_damage.pop(machine, None)
        self._undamaged.pop(machine, None)

    def deleted(self, topic: str, end: int) -> None:
        """Note that a topic was deleted on the master, and where the master's log ended then."""
        self.deletions[topic] = end
        for attempt in self.attempts.values():
            if attempt.topic == topic and attempt.offset >= 0:
                attempt.excused = attempt.excused or "the topic was deleted"


def _whole(image: LogImage, end: int) -> int:
    """Return the end of the last record that ends at or before an offset."""
    whole = 0
    for record in image.records():
        if record.offset + record.size > end:
            break
        whole = record.offset + record.size
    return whole


def _was_set_aside(node: StoreNode, end: int) -> bool:
    """Return whether a machine has set its log aside from this offset on."""
    folders = [path.split("/")[3] for path in node.host.disk.paths(f"{ROOT}/setaside")]
    return any(folder.startswith(f"diverged-{end}-") for folder in folders)


def _read(node: StoreNode, start: int, end: int) -> bytes:
    """Return the bytes of a log between two physical offsets, without those that do not exist."""
    if node.state == "down":
        return node.log_image().slice(start, end)
    data = b""
    while start < end:
        piece = node.store.log.read(start, end - start)
        if not piece:
            break
        data += piece
        start += len(piece)
    return data
