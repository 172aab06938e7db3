"""What the audit finds, on small worlds whose faults are known, beside a plain-Python oracle."""

import json
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.model.topics import HALF_TOPIC, SCHEDULE_TOPIC
from rmq_ha.lake.scan import ledger_compare
from rmq_ha.lake.scan.ledger_compare import LedgerSpan
from rmq_ha.lake.scan.ledger_files import LedgerReading
from rmq_ha.lake.scan.ledger_rows import DELIVERED, PRODUCED
from rmq_ha.lake.spark.audit import (
    delays,
    delivery,
    halves,
    keys,
    losses,
    queues,
    reduction,
    windows,
)
from rmq_ha.lake.spark.audit.ledger_comparison import LedgerDifferences, compared
from rmq_ha.lake.spark.audit.ledgers import AuditLedger, read_ledger
from rmq_ha.lake.spark.audit.packed_rows import packed, unpacked
from rmq_ha.lake.spark.audit.stored_rows import AuditRequest
from tests.kits.frames import made

T0 = 1_700_000_000_000
ROWS = (
    "brokerName:string topic:string queueId:int queueOffset:long commitLogOffset:long"
    " id:string sysFlag:int bornMs:long storedMs:long"
    " storeSize:int crcOk:boolean bodyCrc:long tags:string"
)
LEDGER = (
    "topic:string id:string atMs:long status:string transactionState:string"
    " queueId:int queueOffset:long orderKey:string order:long bodyCrc:long group:string"
    " reconsumeTimes:long"
)


class Row(NamedTuple):
    topic: str = "t"
    queue: int = 0
    offset: int = 0
    id: str | None = None
    ms: int = T0
    crc: int = 7
    sys_flag: int = 0
    tags: str | None = None
    broker: str = ""


class Sent(NamedTuple):
    topic: str | None = "t"
    id: str = ""
    ms: int | None = T0
    status: str | None = "SEND_OK"
    order_key: str | None = None
    sequence: int | None = None
    group: str = "g"
    queue: int | None = None
    offset: int | None = None
    times: int = 0
    state: str | None = None
    body_crc: int | None = None


def log(engine: Any, rows: list[Row]) -> Any:
    """Records one after the other."""
    return made(engine,
        [
            (row.broker, row.topic, row.queue, row.offset, 100 * place, row.id, row.sys_flag,
             row.ms, row.ms + 5, 100, True, row.crc, row.tags)
            for place, row in enumerate(rows)
        ],
        ROWS,
    )  # fmt: skip


def ledger(engine: Any, rows: list[Sent]) -> Any:
    return made(engine,
        [
            (row.topic, row.id, row.ms, row.status, row.state, row.queue, row.offset,
             row.order_key, row.ms if row.sequence is None else row.sequence, row.body_crc,
             row.group, row.times)
            for row in rows
        ],
        LEDGER,
    )  # fmt: skip


def told(engine: Any, rows: list[Sent] | None, side: int) -> AuditLedger | None:
    """The same with what it is about."""
    if rows is None:
        return None
    times: dict[tuple[str | None, str], list[int | None]] = defaultdict(list)
    for row in rows:
        times[row.topic, row.group].append(row.ms)
    spans = []
    for (topic, group), every in times.items():
        known = [ms for ms in every if ms is not None]
        spans.append(
            LedgerSpan(topic, group, len(every), min(known, default=None), max(known, default=None))
        )
    nothing = made(engine, [], "n:long")
    return AuditLedger(packed(ledger(engine, rows), side), nothing, 0, spans)


def compare(
    engine: Any,
    stored: Any,
    sent: list[Sent] | None = None,
    given: list[Sent] | None = None,
    **asked: Any,
) -> LedgerDifferences:
    how = AuditRequest(places=[], **asked)
    ledgers = told(engine, sent, PRODUCED), told(engine, given, DELIVERED)
    return compared(how, packed(stored), 100, *ledgers)


def summed(rows: Any, window_ms: int) -> Any:
    return reduction.sums_of(reduction.of_rows(rows, "uniqKey", window_ms))


def found(frame: Any) -> list[tuple[Any, ...]]:
    """Code, topic, queue, offset."""
    rows = frame.select("code", "topic", "queueId", "queueOffset").collect()
    return sorted((tuple(row) for row in rows), key=repr)


# ---------------------------------------------------------------- queues


def damaged(random: Random, size: int) -> list[int]:
    """Offsets of a queue in the order of the log, with faults."""
    offsets = list(range(size))
    for _ in range(random.randrange(4)):
        kind = random.choice(["lose", "double", "swap", "restart"])
        at = random.randrange(1, len(offsets) - 2)
        if kind == "lose":
            del offsets[at : at + random.randrange(1, 4)]
        elif kind == "double":
            offsets.insert(random.randrange(at + 1, len(offsets)), offsets[at])
        elif kind == "swap":
            offsets[at], offsets[at + 1] = offsets[at + 1], offsets[at]
        else:
            offsets = offsets[:at] + list(range(size))
    return offsets


def oracle(offsets: list[int]) -> Counter[tuple[str, int]]:
    """The rules of docs/reference/spark-findings.md, one record after the other."""
    lives: list[list[list[int]]] = [[]]
    result: Counter[tuple[str, int]] = Counter()
    before = None
    for place, offset in enumerate(offsets):
        if before is not None and offset == 0:
            lives.append([])
            result["QUEUE_RESTARTED", 0] += 1
        if before is not None and offset == before + 1:
            lives[-1][-1][1] = offset
        else:
            lives[-1].append([offset, offset, place, -1 if before is None else before])
        before = offset
    for number, life in enumerate(lives):
        covered = -1
        for first, last, _, previous in sorted(life, key=lambda run: (run[0], run[2])):
            is_start = first == 0 and previous >= 0
            if first > covered + 1:
                result["GAP", covered + 1] += 1
            if first <= covered:
                result["OFFSET_TWICE", first] += 1
            elif previous >= first and not is_start and (number or previous >= 0):
                result["SWAPPED", first] += 1
            covered = max(covered, last)
    return result


def test_gaps_twins_and_swaps_are_found_where_they_are(engine: Any) -> None:
    """Forty queues with random faults, mixed into one log: exactly what the oracle says."""
    random = Random(7)
    queues_of = {number: damaged(random, 20) for number in range(40)}
    left = {number: list(offsets) for number, offsets in queues_of.items()}
    rows = []
    while left:
        number = random.choice(sorted(left))
        rows.append(Row(queue=number, offset=left[number].pop(0)))
        if not left[number]:
            del left[number]
    rows += [Row(queue=99, offset=0, sys_flag=4), Row(queue=99, offset=0, sys_flag=12)]
    runs = queues.runs_of(queues.single_runs(log(engine, rows))).keep()
    result: dict[int, Counter[tuple[str, int]]] = defaultdict(Counter)
    for code, _, queue, offset in found(queues.queue_findings(queues.covered(runs, [""]))):
        result[queue][code, offset] += 1
    expected = {number: oracle(offsets) for number, offsets in queues_of.items()}
    assert {q: c for q, c in result.items() if c} == {q: c for q, c in expected.items() if c}
    assert sum(map(len, expected.values())) > 40
    # Without knowing that the log is whole, a queue may begin anywhere.
    late = runs.where("queueId = 99")
    assert found(queues.queue_findings(queues.covered(late))) == []


# ---------------------------------------------------------------- ids


def test_ids_stored_twice_lost_or_unknown(engine: Any) -> None:
    """Each kind of topic has its own idea of "twice"; the edges of the view raise no alarm."""
    rows = [
        Row(offset=0, id="A"),
        Row(queue=1, offset=0, id="B"),
        Row(queue=1, offset=1, id="A"),  # twice
        Row(offset=1, id="C", crc=1),
        Row(offset=2, id="C", crc=2),  # another message
        Row(SCHEDULE_TOPIC, 2, 0, "D"),
        Row(SCHEDULE_TOPIC, 2, 1, "D"),
        Row("%RETRY%g", 0, 0, "D"),
        Row("%RETRY%g", 0, 1, "D"),
        Row("u", 0, 0, "A"),  # the same id in another topic is another message
        Row(offset=3, id=None),
        Row(offset=4, id=None),
        Row(offset=5, id="S", ms=T0 + 500),
        Row(offset=6, id="Z", ms=T0 + 60_000),
    ]
    stored = log(engine, rows)
    twice = keys.duplicate_findings(compare(engine, stored).rows_of(ledger_compare.COPY))
    assert found(twice) == [("DUPLICATE", "t", 1, 1), ("KEY_REUSED", "t", 0, 2)]
    (detail,) = [row.detail for row in twice.collect() if row.code == "DUPLICATE"]
    assert "t/0@0" in detail

    said = [
        Sent(id="A", body_crc=7), Sent(id="B", body_crc=8), Sent(None, id="C", body_crc=2),
        Sent("u", id="S", body_crc=8), Sent(id="Z", body_crc=9), Sent(id="Z", body_crc=7),
    ]  # fmt: skip
    changed = keys.changed_findings(compare(engine, stored, said).rows_of(ledger_compare.UNLIKE))
    assert found(changed) == [("BODY_CHANGED", "t", 0, 1), ("BODY_CHANGED", "t", 1, 0)]

    edges = keys.Edges(T0, T0 + 60_000, 10_000, whole=False)
    sent = [
        Sent(id="A"), Sent(id="B"), Sent(id="D", ms=T0 + 12_000),
        Sent(id="L1", ms=T0 + 20_000, status="FLUSH_SLAVE_TIMEOUT"),
        Sent(id="L2", ms=None, status=None),
        Sent(id="N", ms=T0 + 20_000, status="FAILED"),
        Sent(id="old", ms=T0 + 9_999),
        Sent(id="new", ms=T0 + 50_001),
    ]  # fmt: skip
    some = compare(engine, stored, sent)
    absent = keys.ledger_in_view(some.rows_of(ledger_compare.ABSENT, PRODUCED), edges)
    lost = keys.lost_messages(absent)
    assert {row.msgId for row in keys.lost_findings(lost).collect()} == {"L1", "L2"}
    assert {row.id for row in absent.where("state = 'inFlight'").collect()} == {"new"}
    strangers = keys.unproduced_findings(some.rows_of(ledger_compare.UNPRODUCED)).collect()
    assert [(row.topic, row.actual, row.msgId) for row in strangers] == [("t", "3 messages", "C")]


# ---------------------------------------------------------------- deliveries


def test_deliveries_never_twice_late_or_of_what_is_gone(engine: Any) -> None:
    rows = [Row(offset=n, id=f"a{n}", ms=T0 + n * 1_000, tags="X") for n in range(10)]
    rows += [Row(queue=1, offset=n, id=f"b{n}", ms=T0 + n * 1_000, tags="Y") for n in range(4)]
    rows += [Row(offset=10, id="tail", ms=T0 + 60_000)]
    stored = log(engine, rows).keep()
    got = [Sent(id=f"a{n}", ms=T0 + n * 1_000 + 50, queue=0, offset=n) for n in range(10)]
    got[4] = got[4]._replace(id="a5", offset=5)
    got[5] = got[5]._replace(id="a4", offset=4)  # late
    del got[7]  # never
    got += [Sent(id="a1", ms=T0 + 9_000, queue=0, offset=1)]  # twice
    got += [Sent(id="a2", ms=T0 + 9_500, queue=0, offset=77, times=1)]  # a retry
    got += [Sent(id="ghost", ms=T0 + 5_000, queue=0, offset=3)]
    some = compare(engine, stored, given=got, ordered=["g"])
    assert found(delivery.twice_findings(some.rows_of(ledger_compare.TWICE))) == [
        ("DELIVERED_TWICE", "t", 0, 1)
    ]
    ungiven, taken = some.rows_of(ledger_compare.UNGIVEN), some.rows_of(ledger_compare.TAKEN)
    never = delivery.never_findings(taken, 1_000, {}, ungiven)
    assert found(never) == [("NEVER_DELIVERED", "t", 0, 7)]
    assert found(delivery.never_findings(taken, 1_000, {"g": ["Y"]}, ungiven)) == []
    sums = summed(stored, 1_000)
    silent = delivery.silent_findings(taken, sums, 1_000, [])
    assert found(silent) == [("NEVER_DELIVERED", "t", 1, 0)]
    firsts = some.rows_of(ledger_compare.ORDERED, DELIVERED)
    assert found(delivery.late_findings(["g"], firsts)) == [("OUT_OF_ORDER", "t", 0, 4)]
    assert found(delivery.late_findings(["another"], firsts)) == []
    assert compare(engine, stored, given=got).rows_of(ledger_compare.ORDERED) is None
    edges = keys.Edges(T0, T0 + 60_000, 1_000, whole=True)
    absent = keys.ledger_in_view(some.rows_of(ledger_compare.ABSENT, DELIVERED), edges)
    bounds = made(engine, [("t", 0, 4)], "topic:string queueId:int least:long")
    gone = delivery.missing_deliveries(absent, bounds, True)
    assert found(delivery.gone_findings(gone)) == [("DELIVERED_LOST", "t", 0, 3)]
    assert delivery.missing_deliveries(absent, bounds, False).isEmpty()  # below the queue's least


def test_a_sequence_keeps_its_order_and_its_queue(engine: Any) -> None:
    stored = log(
        engine,
        [
            Row(offset=0, id="k1"), Row(offset=1, id="k3"), Row(offset=2, id="k2"),
            Row(offset=3, id="m1"), Row(queue=1, offset=0, id="m2"),
            Row(offset=4, id="n2"), Row(offset=5, id="n1"),
        ],
    )  # fmt: skip
    sent = [Sent(id=f"k{n}", ms=T0 + n, order_key="k") for n in (1, 2, 3)]
    sent += [Sent(id=f"m{n}", ms=T0, sequence=n, order_key="m") for n in (1, 2)]
    sent += [Sent(id=f"n{n}", ms=T0, order_key="n") for n in (1, 2)]  # in the same ms: unknown
    placed = compare(engine, stored, sent).rows_of(ledger_compare.ORDERED, PRODUCED)
    rows = delivery.misplaced_findings(placed).collect()
    assert sorted((row.msgId, row.actual) for row in rows) == [
        ("k3", "in front of it"),
        ("m1", "several queues"),
    ]


# ---------------------------------------------------------------- transactions, windows, ledgers


def test_half_messages_without_an_end(engine: Any) -> None:
    """A mark on any copy, a committed message, or a broker that gave up ends a transaction."""
    rows = [
        Row(HALF_TOPIC, 0, 0, "open"),
        Row(HALF_TOPIC, 0, 1, "marked"),
        Row(HALF_TOPIC, 0, 2, "committed"),
        Row(HALF_TOPIC, 0, 3, "open"),
        Row(HALF_TOPIC, 0, 4, "given up"),
        Row("t", 0, 0, "committed", sys_flag=8),
        Row("TRANS_CHECK_MAX_TIME_TOPIC", 0, 0, "given up"),
        Row(HALF_TOPIC, 0, 5, "young", T0 + 590_000),
        Row("t", 0, 1, "last", T0 + 600_000),
    ]
    place = "brokerName:string queueId:int queueOffset:long"
    marks = made(engine, [("", 0, 1), ("", 0, 2)], place)
    stored = log(engine, rows)
    (row,) = halves.open_findings(stored, marks, T0 + 600_000).collect()
    assert (row.msgId, row.queueOffset, row.severity) == ("open", 0, "WARN")
    assert "2 times" in row.detail
    # What its producer committed has to be in its topic, once the broker has noted the end.
    said = [Sent(id=name, state="COMMIT_MESSAGE") for name in ("open", "marked", "committed")]
    sent = ledger(engine, [*said, Sent(id="marked", state="ROLLBACK_MESSAGE")])
    (row,) = halves.commit_findings(halves.unplaced_commits(sent, stored, marks)).collect()
    assert (row.code, row.severity, row.msgId) == ("COMMIT_LOST", "ERROR", "marked")
    rolled = ledger(engine, [Sent(id="marked", state="ROLLBACK_MESSAGE"), Sent(id="marked")])
    assert halves.unplaced_commits(rolled, stored, marks).isEmpty()


def test_what_was_delayed_or_sent_back_comes_to_its_topic(engine: Any) -> None:
    """Nobody missed a delayed message whose copy was lost: its id still lay on its way."""
    late = "brokerName:string queueId:int queueOffset:long commitLogOffset:long storedMs:long"
    late += " id:string realTopic:string realQueueId:int"
    delayed = [
        ("", 1, 0, 0, T0, "came", "t", 0),
        ("", 1, 1, 100, T0, "lost", "t", 0),
        ("", 1, 2, 200, T0, "came later", "t", 1),
        ("", 1, 3, 300, T0, "not yet", "t", 0),
        ("", 2, 0, 400, T0, "due", "t", 0),
        ("", 2, 1, 500, T0, "due later", "t", 0),
        ("", 3, 0, 600, T0, "back", "%RETRY%g", 0),
        ("", 3, 1, 700, T0, "back", "%RETRY%g", 0),
        ("", 3, 2, 800, T0, "back, too", "%RETRY%g", 0),
        ("", 4, 0, 900, T0, "just missed", "t", 0),
        ("", 4, 1, 950, T0, "just came", "t", 0),
    ]
    rows = [Row(SCHEDULE_TOPIC, row[1], row[2], row[5]) for row in delayed]
    rows += [Row("t", 0, 0, "came"), Row("t", 1, 0, "came later"), Row("u", 0, 0, "lost")]
    rows += [Row("%RETRY%g", 0, 0, "back"), Row("%RETRY%g", 0, 1, "back, too")]
    rows += [Row("t", 0, 1, "just came", T0 + 9_000)]
    copied = delays.with_copies(made(engine, delayed, late), log(engine, rows))
    missing = delays.undelivered(copied, {("", 2): 1}, T0 + 5_000)
    told = delays.delay_findings(missing).collect()
    assert {(row.code, row.msgId, row.queueId, row.queueOffset) for row in told} == {
        ("DELAY_NOT_DELIVERED", "lost", 1, 1),
        ("DELAY_NOT_DELIVERED", "due", 2, 0),
        ("RETRY_LOST", "back", 3, 1),
    }
    assert {row.topic for row in told} == {SCHEDULE_TOPIC}


def test_one_loss_is_one_finding(engine: Any) -> None:
    """A message that is missed by its id is not told of again as a hole in its queue."""
    offsets = {0: (0, 1, 4, 5), 1: (0, 2), 2: (1,), 3: (0, 2, 4)}
    rows = [Row(queue=number, offset=at) for number, mine in offsets.items() for at in mine]
    rows += [Row("u", 0, 0), Row("u", 0, 2)]
    judged = queues.covered(queues.runs_of(queues.single_runs(log(engine, rows))), [""]).keep()
    gaps = queues.gaps(judged)
    sent = ledger(
        engine,
        [
            Sent(id="placed", queue=0, offset=2),
            Sent(id="given", queue=1),
            Sent(id="anywhere"),
            Sent("u", id="alone"),
        ],
    )
    given = ledger(engine, [Sent(id="given", queue=1, offset=1)])
    lost = losses.with_places(sent, given, gaps).keep()
    assert {row.id: (row.queueId, row.queueOffset) for row in lost.collect()} == {
        "placed": (0, 2),
        "given": (1, 1),
        "anywhere": (None, None),
        "alone": (0, 1),
    }
    late = made(engine, [("t", 2, None)], "topic:string queueId:int queueOffset:long")
    told = queues.queue_findings(judged, losses.known_in(gaps, [lost, late]))
    assert found(told) == [("GAP", "t", 0, 2), ("GAP", "t", 3, 1), ("GAP", "t", 3, 3)]
    (gap,) = [row for row in told.collect() if row.queueId == 0]
    assert gap.detail.startswith("1 messages are missing")  # the other one has a name


def test_a_clock_that_was_set_back(engine: Any) -> None:
    """By more than the grace; brokers' clocks are not compared with each other."""
    rows = [Row(offset=n, ms=T0 + n * 1_000, broker="a") for n in range(100)]
    rows += [Row(offset=100 + n, ms=T0 - 50_000 + n * 1_000, broker="a") for n in range(100)]
    rows += [Row(offset=n, ms=T0 - n % 2 * 4_000 - 100_000, broker="b") for n in range(100)]
    sums = summed(log(engine, rows), 1_000).keep()
    (row,) = windows.clock_findings(sums, 10_000).collect()
    assert (row.code, row.severity, row.broker, row.physicalOffset) == (
        ("CLOCK_BACK", "WARN", "a", 10_000)
    )
    assert "went back by 149000 ms" in row.detail
    assert windows.clock_findings(sums, 150_000).isEmpty()


def test_windows_count_every_tier_by_when_messages_were_born(engine: Any, tmp_path: Path) -> None:
    rows = [Row(offset=n, id=f"a{n}", ms=T0 // 60_000 * 60_000 + n * 20_000) for n in range(6)]
    stored = log(engine, rows)
    sums = summed(stored, 60_000)
    lines = [json.dumps({"topic": "t", "msgId": row.id, "sentAt": row.ms}) for row in rows]
    path = tmp_path / "sent.jsonl"
    path.write_text("\n".join(lines))
    sent = read_ledger(engine, str(path), LedgerReading(PRODUCED, "msgId", 60_000)).counts
    got = [Sent(id=row.id or "", ms=row.ms + 5 + 40, offset=None) for row in rows[:4]]
    taken = compare(engine, stored, given=got).rows_of(ledger_compare.TAKEN)
    tiers = windows.tiers(sums, sent, taken).keep()
    counts = tiers.orderBy("window").select("produced", "stored", "delivered").collect()
    assert [tuple(row) for row in counts] == [(3, 3, 3), (3, 3, 1)]
    (first,) = tiers.orderBy("window").limit(1).collect()
    assert first.bornToStoredP99 == 5
    assert first.storedToDeliveredP50 == 40
    topics, *plots = windows.sections(tiers, 60_000, ledgers=["produced", "delivered"])
    assert [len(plot.x) for plot in plots] == [2, 2, 2, 2]
    assert topics.rows == [("t", 6, 6, 4, 600)]
    of_ledger = windows.tiers(sums.where("false"), sent, None)
    topics, *plots = windows.sections(of_ledger, 60_000, ledgers=["produced"])
    assert topics.rows == [("t", 6, "-", "-", "-")]
    assert len(plots) == 3
    (topics,) = windows.sections(of_ledger.where("false"), 60_000, ledgers=["produced"])
    assert topics.rows == []


def test_ledgers_of_every_spelling(engine: Any, tmp_path: Path) -> None:
    """Ours, `rmqha-admin --json`'s, times as numbers and text, a torn last line, Parquet."""
    lines = [
        json.dumps({"topic": "t", "msgId": "A", "sentAt": T0, "status": "SEND_OK"}),
        json.dumps({"status": "SEND_OK", "msg_id": "B,C", "queue_offset": 7, "queue_id": 1}),
        json.dumps({"topic": "t", "uniqKey": "D", "sent_at": "2023-11-14T22:13:20Z"}),
        json.dumps({"topic": "t", "sentAt": T0}),
        '{"topic": "t", "msgI',
    ]
    path = tmp_path / "sent.jsonl"
    path.write_text("\n".join(lines))
    sent = LedgerReading(PRODUCED, "msgId", 60_000)
    read = read_ledger(engine, str(path), sent)
    rows = {row.id: row for row in unpacked(read.rows).collect()}
    assert set(rows) == {"A", "B", "C", "D"}
    assert read.unusable == 2
    assert rows["A"].atMs == rows["D"].atMs == T0
    assert (rows["C"].queueId, rows["C"].queueOffset, rows["C"].topic) == (1, 8, None)
    assert rows["B"].queueOffset == 7, "a batch has the offset of its first message"
    parquet = tmp_path / "given.parquet"
    at = pa.array([T0], pa.timestamp("ms", "UTC"))
    row = {"group": ["g"], "topic": ["t"], "msgId": ["A"], "deliveredAt": at, "queueId": [3]}
    pq.write_table(pa.table(row), parquet)
    given = LedgerReading(DELIVERED, "msgId", 60_000)
    (row,) = unpacked(read_ledger(engine, str(parquet), given).rows).collect()
    assert (row.group, row.atMs, row.queueId, row.reconsumeTimes) == ("g", T0, 3, 0)
    with pytest.raises(CannotDecide, match="cannot be read"):
        read_ledger(engine, str(tmp_path / "none.jsonl"), sent)
    path.write_text('{"what":1}\n')
    with pytest.raises(CannotDecide, match="msgId"):
        read_ledger(engine, str(path), sent)
