"""What the difference between a master and a slave means: plain values in, codes out.

A slave's value S is right when the master had it lately: M(t - skew) <= S <= M(now). What is known
of the master are samples: a *window* of them, the first one older than the skew (then a difference
is *proven*), the last one younger than the slave's.
"""

from typing import NamedTuple

from rmq_ha.base.model.topics import RETRY_PREFIX, SYSTEM_GROUP_PREFIX
from rmq_ha.ops.offsets.model import DELAY, GROUP, LOG, OFFSET, QUEUE, TOPIC, VERSION, Key


class Case(NamedTuple):
    """
    One key, on a master over a window of samples, and on one slave.

    :ivar is_proven: the window is long enough for a difference to be wrong.
    :ivar is_first: of several slaves; findings about the master come once.
    :ivar is_crashed: the master's offsets may be older than when it ended.
    :ivar is_served: the master has what progress is made in: the queue, and of an offset the group.
    :ivar is_steady: the master had it in all samples (texts: unchanged).
    :ivar on_master: the master had it in some sample.
    :ivar master: its value in the last sample; `lowest` and `highest` over the window, `before` in
        the last sample that was taken before the slave's.
    :ivar first: where the queue (of an offset: the queue it is in) begins, `end`: and ends.
    """

    key: Key
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


class Ruling(NamedTuple):
    """
    :ivar codes: of `MEANINGS`; empty: in sync.
    :ivar repeats: messages that exist on the slave and are delivered again after a fail-over.
    :ivar skipped: messages that are never delivered, as their offset is passed over.
    :ivar lost: messages that the slave has not got.
    """

    codes: tuple[str, ...] = ()
    repeats: int = 0
    skipped: int = 0
    lost: int = 0


_NONE = -1
"""What brokers write where there is no offset; nothing is below it."""


def judge(case: Case, max_lag: int = 0) -> Ruling:
    """
    Say what a case means.

    :param max_lag: messages that a queue of the slave may lack.
    """
    kind = case.key.kind
    if kind in (OFFSET, DELAY):
        return _progress(case)
    if kind in (QUEUE, LOG):
        return _extent(case, max_lag)
    return Ruling(_configuration(case))


def _on_its_way(case: Case) -> str:
    """The master has it for less than the window, or the window is too short to tell."""
    return "LAGGING" if case.is_proven else "UNSETTLED"


def _if_proven(case: Case, code: str) -> str:
    return code if case.is_proven else "UNSETTLED"


# Offsets of groups and delay levels


def _progress(case: Case) -> Ruling:
    is_delay = case.key.kind == DELAY
    ahead = "DELAY_AHEAD" if is_delay else "SLAVE_AHEAD"
    repeats, skipped = _moved(case)
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


def _moved(case: Case) -> tuple[int, int]:
    """
    Repeats and skips when consumers go on from the slave's offset instead of the master's.

    A broker's own group looks at transactions again; it delivers nothing.
    """
    repeats, skipped = _moved_by(case)
    is_own = (case.key.group or "").startswith(SYSTEM_GROUP_PREFIX)
    return 0 if is_own else repeats, skipped


def _moved_by(case: Case) -> tuple[int, int]:
    master = max(0, _number(case.master))
    first, end = case.slave_first or 0, case.slave_end or 0
    below = _missed_below(case) if case.key.kind == OFFSET else 0
    if case.slave is not None and case.slave >= 0:
        repeats = max(0, min(master, end) - max(case.slave, first))
        ahead = 0 if case.is_crashed else max(0, min(case.slave, end) - max(master, first))
        return repeats, ahead + below
    # Without an offset (-1 is none) a broker says 0 where the queue is whole, else the consumer
    # begins at the end (CONSUME_FROM_LAST_OFFSET, the default), but for what it retries.
    if first == 0 or (case.key.topic or "").startswith(RETRY_PREFIX):
        return max(0, min(master, end) - first), below
    return 0, max(0, end - max(master, first)) + below


def _missed_below(case: Case) -> int:
    """Messages from the group's offset on that the master still has and the slave has not."""
    if case.slave_first is None or case.master_end is None:
        return 0
    start = max(_number(case.master), case.master_first or 0)
    return max(0, min(case.slave_first, case.master_end) - start)


# Queues and the log


def _extent(case: Case, max_lag: int) -> Ruling:
    is_queue = case.key.kind == QUEUE
    end = case.slave or 0
    if is_queue and case.highest is None:
        # The master has not even its topic; what it has lost, its log lacks.
        return Ruling((_if_proven(case, "ORPHAN_ON_SLAVE"),) if end > 0 else ())
    if end > (case.highest or 0):
        return Ruling(("QUEUE_AHEAD" if is_queue else "LOG_AHEAD",))
    missing = max(0, (case.before or 0) - end)
    codes = []
    if end < (case.lowest or 0) and case.is_proven and case.is_steady:
        # How much of a log is too much its queues say, if some messages may be missing.
        if missing > max_lag if is_queue else not max_lag:
            codes.append("NOT_REPLICATED" if is_queue else "LOG_BEHIND")
        else:
            codes.append("LAGGING")
    elif missing > 0:
        too_much = is_queue and 0 < max_lag < missing
        codes.append("UNSETTLED" if too_much else _on_its_way(case))
    if is_queue and case.on_slave and (case.slave_low or 0) > (case.master_low or 0):
        codes.append("MIN_DRIFT")
    return Ruling(tuple(codes), lost=missing if is_queue else 0)


# Topics, groups, versions


def _configuration(case: Case) -> tuple[str, ...]:
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
