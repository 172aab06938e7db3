"""
Judges a difference between a master and a slave: plain values go in, codes come out.

A slave's value S is right when the master had it lately: M(t - skew) <= S <= M(now). A *window* of
samples shows the master's values. The last sample is younger than the slave's snapshot. If the
first sample is older than the skew, a difference is *proven*.
"""

from typing import NamedTuple

from rmq_ha.base.model.topics import RETRY_PREFIX, SYSTEM_GROUP_PREFIX
from rmq_ha.ops.offsets.model import DELAY, GROUP, LOG, OFFSET, QUEUE, TOPIC, VERSION, FactKey


class Case(NamedTuple):
    """
    One key at a slave, and at its master over a window of samples.

    :ivar is_proven: whether the window is long enough to prove a difference.
    :ivar is_first: whether the slave is the first of several; findings about the master are
        reported for it only.
    :ivar is_crashed: whether the master crashed, so that its offsets may be older than its log's
        end.
    :ivar is_served: whether the master has the key's queue, and for an offset the group as well.
    :ivar is_steady: whether the master had the key in all samples (for a text: unchanged).
    :ivar on_master: whether the master had the key in some sample.
    :ivar master: the master's value in the last sample; `lowest` and `highest` are those of the
        window, `before` is that of the last sample taken before the slave's.
    :ivar master_first: where the queue begins at the master; for an offset the queue that it is in.
    :ivar master_end: where that queue ends; `slave_first` and `slave_end` are those at the slave.
    :ivar is_deleted: whether the topic is missing in the tables of topics of both sides.
    :ivar has_messages: whether both logs rest and begin at the same place, so that a queue that
        begins later at the slave lacks messages that its log has.
    """

    key: FactKey
    is_proven: bool
    is_first: bool
    is_crashed: bool
    is_served: bool
    on_master: bool
    is_steady: bool
    master: int | None
    lowest: int | None
    highest: int | None
    before: int | None
    master_text: str | None
    master_low: int | None
    on_slave: bool
    slave: int | None
    slave_text: str | None
    slave_low: int | None
    master_first: int | None
    master_end: int | None
    slave_first: int | None
    slave_end: int | None
    is_deleted: bool = False
    has_messages: bool = False


class Ruling(NamedTuple):
    """
    The judgement on one case.

    :ivar codes: codes of `MEANINGS`; empty: in sync.
    :ivar repeats: messages that exist on the slave and are delivered again after a failover.
    :ivar skipped: messages that are never delivered, because the offset is beyond them.
    :ivar lost: messages that the slave lacks.
    """

    codes: tuple[str, ...] = ()
    repeats: int = 0
    skipped: int = 0
    lost: int = 0


_NONE = -1
"""The offset that brokers write if a group has none; no value is lower."""


def judge(case: Case, max_lag: int = 0) -> Ruling:
    """Return the ruling on a case; a queue of the slave may lack `max_lag` messages."""
    kind = case.key.kind
    if kind in (OFFSET, DELAY):
        return _progress(case)
    if kind in (QUEUE, LOG):
        return _extent(case, max_lag)
    return Ruling(_configuration(case))


def _on_its_way(case: Case) -> str:
    """Return the code for a key that is younger than the window, or whose window is too short."""
    return "LAGGING" if case.is_proven else "UNSETTLED"


def _if_proven(case: Case, code: str) -> str:
    """Return the code, or UNSETTLED if the window of samples is too short to prove it."""
    return code if case.is_proven else "UNSETTLED"


# Offsets of groups and delay levels


def _progress(case: Case) -> Ruling:
    """Judge the offset of a group in a queue, or the progress of a delay level."""
    is_delay = case.key.kind == DELAY
    ahead = "DELAY_AHEAD" if is_delay else "SLAVE_AHEAD"
    repeats, skipped = _repeats_and_skips(case)
    if not case.on_master and case.is_deleted:
        return Ruling(("TOPIC_DELETED",))
    if not case.on_master:
        # A master without an entry begins at 0, unless the group or the queue was deleted there.
        if not case.is_served or not skipped or _number(case.slave) <= 0:
            return Ruling((_if_proven(case, "ORPHAN_ON_SLAVE"),))
        return Ruling((_if_proven(case, ahead),), 0, skipped)
    if _number(case.master) < _NONE:
        return Ruling(("MASTER_DAMAGED",) if case.is_first else ())
    is_sure = case.is_proven and case.is_steady
    slave, codes = case.slave, []
    if slave is None:
        missing = "DELAY_LAG" if is_delay else "MISSING_ON_SLAVE"
        codes.append(missing if is_sure else _on_its_way(case))
    elif slave < _number(case.lowest) and is_sure:
        codes.append("DELAY_LAG" if is_delay else "STALE")
    elif slave < _number(case.master):
        codes.append("LAGGING")
    elif slave > _number(case.highest):
        codes.append(_if_proven(case, "MASTER_OLDER" if case.is_crashed else ahead))
    if slave is not None and case.slave_end is not None and slave > case.slave_end:
        codes.append("BEYOND_MAX")
    if _missed_below(case) > 0 and not is_delay:
        codes.append("BELOW_MIN")
    if case.is_first and case.master_end is not None and _number(case.master) > case.master_end:
        codes.append("MASTER_BEYOND_MAX")
    return Ruling(tuple(codes), repeats, skipped)


def _repeats_and_skips(case: Case) -> tuple[int, int]:
    """
    Return repeats and skips when consumers go on from the slave's offset instead of the master's.

    A broker's own group only checks transactions again; it delivers no messages, so its repeats
    count as 0.
    """
    repeats, skipped = _moved_by(case)
    is_own = (case.key.group or "").startswith(SYSTEM_GROUP_PREFIX)
    return 0 if is_own else repeats, skipped


def _moved_by(case: Case) -> tuple[int, int]:
    """Return how many messages are repeated and how many skipped, for groups of users."""
    master = max(0, _number(case.master))
    first, end = case.slave_first or 0, case.slave_end or 0
    below = _missed_below(case) if case.key.kind == OFFSET else 0
    if case.slave is not None and case.slave >= 0:
        repeats = max(0, min(master, end) - max(case.slave, first))
        ahead = 0 if case.is_crashed else max(0, min(case.slave, end) - max(master, first))
        return repeats, ahead + below
    # Without an offset (-1 means none) a broker answers 0 if the queue is whole. Otherwise the
    # consumer begins at the end (CONSUME_FROM_LAST_OFFSET, the default), except in its retry topic.
    if first == 0 or (case.key.topic or "").startswith(RETRY_PREFIX):
        return max(0, min(master, end) - first), below
    return 0, max(0, end - max(master, first)) + below


def _missed_below(case: Case) -> int:
    """Return how many messages from the group's offset on only the master still has."""
    if case.slave_first is None or case.master_end is None:
        return 0
    start = max(_number(case.master), case.master_first or 0)
    return max(0, min(case.slave_first, case.master_end) - start)


# Queues and the log


def _extent(case: Case, max_lag: int) -> Ruling:
    """Judge where a queue or the log begins and ends."""
    is_queue = case.key.kind == QUEUE
    end = case.slave or 0
    if is_queue and case.highest is None:
        # The master does not even have the topic. Messages that it lost are missing in its log as
        # well.
        code = "TOPIC_DELETED" if case.is_deleted else _if_proven(case, "ORPHAN_ON_SLAVE")
        return Ruling((code,) if end > 0 else ())
    if end > (case.highest or 0):
        return Ruling(("QUEUE_AHEAD" if is_queue else "LOG_AHEAD",))
    missing = max(0, (case.before or 0) - end)
    codes = []
    if end < (case.lowest or 0) and case.is_proven and case.is_steady:
        # If some messages may be missing, the queues decide whether too much of the log is.
        if missing > max_lag if is_queue else not max_lag:
            codes.append("NOT_REPLICATED" if is_queue else "LOG_BEHIND")
        else:
            codes.append("LAGGING")
    elif missing > 0:
        too_much = is_queue and 0 < max_lag < missing
        codes.append("UNSETTLED" if too_much else _on_its_way(case))
    if is_queue and case.on_slave and (case.slave_low or 0) > (case.master_low or 0):
        codes.append("QUEUE_CUT" if case.has_messages else "MIN_DRIFT")
    return Ruling(tuple(codes), lost=missing if is_queue else 0)


# Topics, groups, versions


def _configuration(case: Case) -> tuple[str, ...]:
    """Judge a topic, a group, or the version of a table."""
    kind, is_sure = case.key.kind, case.is_proven and case.is_steady
    if case.on_master and case.on_slave and case.master_text == case.slave_text:
        return ()
    if not case.on_master:
        return (_if_proven(case, "ORPHAN_ON_SLAVE"),)
    if not is_sure:
        return (_on_its_way(case),)
    if not case.on_slave:
        return (_MISSING[kind],)
    if kind == VERSION:
        return ("VERSION_DRIFT" if case.master == case.slave else "STALE_TABLE",)
    if kind == TOPIC and (case.master, case.master_low) != (case.slave, case.slave_low):
        return ("QUEUE_NUM_DRIFT",)
    return ("CONTENT_DRIFT",)


_MISSING = {TOPIC: "MISSING_TOPIC_CONFIG", GROUP: "MISSING_GROUP", VERSION: "STALE_TABLE"}


def _number(value: int | None) -> int:
    return 0 if value is None else value
