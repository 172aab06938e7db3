"""What an audit makes of all that is told of an id, and that what fits need not be looked at."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.lake.scan import ledger_compare
from rmq_ha.lake.scan.ledger_compare import SCHEMA, LedgerComparison, LedgerSpan
from rmq_ha.lake.scan.ledger_rows import DELIVERED, PRODUCED, STORED, TOLD, keys_hashes

KINDS = {
    getattr(ledger_compare, name): name
    for name in (
        "COPY", "ABSENT", "UNPRODUCED", "UNLIKE", "TWICE", "TAKEN", "UNGIVEN", "ORDERED",
        "VISIBLE", "REKEYED", "EARLY",
    )
}  # fmt: skip


def record(id: str = "a", **given: Any) -> dict[str, Any]:
    """A record of the log, sound, at 5 ms, of a message that was born at 3."""
    return {
        "side": STORED, "id": id, "brokerName": "", "topic": "t", "queueId": 0, "queueOffset": 0,
        "commitLogOffset": 0, "storedMs": 5, "bornMs": 3, "bodyCrc": 7, "sysFlag": 0, "crcOk": True,
        "reconsumeTimes": 0,
    } | given  # fmt: skip


def sent(id: str = "a", **given: Any) -> dict[str, Any]:
    return {"side": PRODUCED, "id": id, "topic": "t", "atMs": 3, "group": "", **given}


def got(id: str = "a", **given: Any) -> dict[str, Any]:
    told = {"topic": "t", "atMs": 9, "group": "g", "reconsumeTimes": 0, "order": 9}
    return {"side": DELIVERED, "id": id, **told, **given}


def spans(rows: list[dict[str, Any]], side: int) -> list[LedgerSpan]:
    mine = [row for row in rows if row["side"] == side]
    return [LedgerSpan(row["topic"], row["group"], 1, row["atMs"], row["atMs"]) for row in mine]


def sieve_for(
    rows: list[dict[str, Any]], kind: type[LedgerComparison] = LedgerComparison, ordered: str = ""
) -> LedgerComparison:
    return kind(10, spans(rows, PRODUCED), spans(rows, DELIVERED), ordered.split())


def sifted(rows: list[dict[str, Any]], how: LedgerComparison | None = None) -> list[dict[str, Any]]:
    """Each kind by its name; what is null is left out."""
    told = pa.RecordBatch.from_pylist(rows, schema=TOLD)
    batches = list((how or sieve_for(rows)).batches([told] if rows else []))
    assert all(batch.schema == SCHEMA and len(batch) for batch in batches)
    return [
        {name: value for name, value in row.items() if value is not None}
        | {"kind": KINDS[row["kind"]]}
        for batch in batches
        for row in batch.to_pylist()
    ]


def kinds(rows: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return sorted((row["kind"], row.get("id")) for row in sifted(rows) if row["kind"] != "TAKEN")


def test_of_what_fits_deliveries_are_counted() -> None:
    rows = [record("a"), record("b", queueOffset=1, storedMs=6, bornMs=13), sent("a"), sent("b")]
    rows += [got("a", queueId=0, queueOffset=0), got("b"), record("%", topic="%RETRY%g")]
    found = sifted(rows)
    counts = {"n": 1, "group": "g", "brokerName": "", "topic": "t", "queueId": 0, "kind": "TAKEN"}
    first = {"leastOffset": 0, "mostOffset": 0, "leastMs": 5, "mostMs": 5}
    second = {"leastOffset": 1, "mostOffset": 1, "leastMs": 6, "mostMs": 6}
    assert sorted(found, key=lambda row: row["window"]) == [
        counts | first | {"window": 0, "latency": 4},
        counts | second | {"window": 10, "latency": 3},
    ]
    (no_time,) = sifted([record(), got(atMs=None)])
    assert no_time["latency"] == -1


def test_copies_are_those_of_one_topic_in_the_order_of_their_times() -> None:
    rows = [record(storedMs=9, queueOffset=4, brokerName="b"), record(bodyCrc=8), record(topic="u")]
    rows.append(record(topic="%RETRY%g"))
    (copy,) = [row for row in sifted(rows) if row["kind"] == "COPY"]
    assert copy["n"] == 2
    assert (copy["place"], copy["first"]) == ("b/t/0@4", "t/0@0")
    assert (copy["bodyCrc"], copy["firstCrc"]) == (7, 8)


def test_the_first_copy_is_the_oldest_whatever_its_broker() -> None:
    rows = [record(brokerName="a", storedMs=9), record(brokerName="b", queueId=1)]
    rows.append(sent(orderKey="k"))
    (copy,) = [row for row in sifted(rows) if row["kind"] == "COPY"]
    assert (copy["place"], copy["first"]) == ("a/t/0@0", "b/t/1@0")
    (ordered,) = [row for row in sifted(rows) if row["kind"] == "ORDERED"]
    assert (ordered["brokerName"], ordered["queueId"]) == ("b", 1)


def test_what_is_in_no_topic_is_absent() -> None:
    assert kinds([sent("x"), got("x")]) == [("ABSENT", "x")] * 2
    assert kinds([record("x", topic="%DLQ%g"), sent("x"), got("x", topic=None)]) == []


def test_unproduced_is_what_nobody_sent_in_the_time_of_the_ledger() -> None:
    ledger = [record("k"), sent("k", atMs=3), record("m"), sent("m", atMs=8)]
    for born, is_told in ((2, False), (3, True), (8, True), (9, False)):
        rows = [*ledger, record("s", bornMs=born)]
        assert kinds(rows) == [("UNPRODUCED", "s")] * is_told
    assert kinds([*ledger, record("s", topic="u")]) == []
    assert kinds([record("s")]) == []


def test_a_body_is_unlike_when_no_ledger_has_it() -> None:
    assert kinds([record(), sent(bodyCrc=8)]) == [("UNLIKE", "a")]
    # The producer knows what it sent: a consumer that got the stored body proves nothing.
    assert kinds([record(), sent(bodyCrc=8), got(bodyCrc=7)]) == [("UNLIKE", "a")]
    assert kinds([record(), got(bodyCrc=7)]) == []
    assert kinds([record(), sent(bodyCrc=8, topic="u"), sent()]) == []
    assert kinds([record(), sent(bodyCrc=8, topic=None)]) == [("UNLIKE", "a")]
    assert kinds([record(crcOk=False), sent(bodyCrc=8)]) == []


def test_what_a_group_got_is_compared_with_what_is_stored() -> None:
    def unlike(*rows: dict[str, Any]) -> list[tuple[int, int | None]]:
        told = [row for row in sifted([record(), *rows]) if row["kind"] == "UNLIKE"]
        return [(row["side"], row.get("firstCrc")) for row in told]

    assert unlike(sent(bodyCrc=7), got(bodyCrc=9)) == [(DELIVERED, 9)]
    assert unlike(got(bodyCrc=7), got(bodyCrc=9, group="h")) == [(DELIVERED, 9)]
    assert unlike(sent(bodyCrc=7), got(bodyCrc=7)) == []
    # Nobody says what was sent: the record may as well be the one that was changed.
    assert unlike(got(bodyCrc=9)) == [(STORED, None)]
    assert unlike(sent(bodyCrc=9), got(bodyCrc=9)) == [(STORED, None)]
    copies = [record(), record(queueOffset=4, commitLogOffset=9, bodyCrc=9)]
    given = [sent(bodyCrc=7), sent(bodyCrc=9), got(queueId=0, queueOffset=4, bodyCrc=9)]
    assert "UNLIKE" not in {row["kind"] for row in sifted([*copies, *given])}


def test_a_transaction_that_was_rolled_back_is_not_in_its_topic() -> None:
    rolled = sent(transactionState="ROLLBACK_MESSAGE")
    assert kinds([record(sysFlag=8), rolled]) == [("VISIBLE", "a")]
    assert kinds([record(sysFlag=4, topic="RMQ_SYS_TRANS_HALF_TOPIC"), rolled]) == []
    assert kinds([record(sysFlag=8), sent(transactionState="COMMIT_MESSAGE")]) == []
    again = sent(transactionState="COMMIT_MESSAGE", atMs=4)
    assert kinds([record(sysFlag=8), rolled, again]) == []


def test_keys_are_those_of_the_producer() -> None:
    keys = keys_hashes(pa.array(["k1 k2", " k1   k2", "k1", "", None])).to_pylist()
    assert keys[0] == keys[1] != keys[2] != keys[3]
    assert keys[4] is None
    lists = keys_hashes(pa.array(["k1,k2", '["k1", "k2"]'])).to_pylist()
    assert lists == [keys[0]] * 2
    assert kinds([record(keysHash=keys[2]), sent(keysHash=keys[0])]) == [("REKEYED", "a")]
    assert kinds([record(keysHash=keys[3]), sent(keysHash=keys[0])]) == [("REKEYED", "a")]
    for stored, said in ((keys[1], keys[0]), (keys[2], None), (None, keys[0])):
        assert kinds([record(keysHash=stored), sent(keysHash=said)]) == []


def test_nothing_is_delivered_before_it_exists() -> None:
    late = record(bornMs=50_000, storedMs=50_005)
    for at, is_early in ((39_999, True), (40_000, False), (60_000, False)):
        found = [row for row in sifted([late, got(atMs=at)]) if row["kind"] == "EARLY"]
        assert [(row["atMs"], row["group"]) for row in found] == [(at, "g")] * is_early
    # A stamp of tomorrow is the fault of the broker's clock.
    tomorrow = record(bornMs=50_000, storedMs=86_400_000)
    assert "EARLY" not in {row["kind"] for row in sifted([tomorrow, got(atMs=50_010)])}


def test_a_copy_has_no_place_in_an_order() -> None:
    """One repeated send made all messages behind the first one seem out of order."""
    first = record("a", queueOffset=0, commitLogOffset=0)
    copy = record("a", queueOffset=9, commitLogOffset=900)
    for stored in (5, 4):  # the copy may have the same stamp, or that of a clock that was set back
        rows = [
            {**copy, "storedMs": stored}, first, record("b", queueOffset=1, commitLogOffset=100),
            sent("a", orderKey="k", order=1), sent("b", orderKey="k", order=2),
            got("a", orderKey="k", queueId=0, queueOffset=0, order=1),
            got("a", orderKey="k", queueId=0, queueOffset=9, order=1, atMs=99),
            got("b", orderKey="k", queueId=0, queueOffset=1, order=2),
        ]  # fmt: skip
        placed = [row for row in sifted(rows) if row["kind"] == "ORDERED"]
        assert sorted((row["side"], row["id"], row["queueOffset"]) for row in placed) == [
            (PRODUCED, "a", 0), (PRODUCED, "b", 1), (DELIVERED, "a", 0), (DELIVERED, "b", 1),
        ]  # fmt: skip


def test_twice_is_the_same_place_without_having_been_sent_back() -> None:
    again = [got(queueId=0, queueOffset=0), got(queueId=0, queueOffset=0, atMs=11)]
    (twice,) = [row for row in sifted([record(), *again]) if row["kind"] == "TWICE"]
    assert (twice["n"], twice["atMs"], twice["group"]) == (2, 11, "g")
    sent_back = got(reconsumeTimes=1, queueId=3, queueOffset=4)
    (taken,) = sifted([record(), got(), sent_back])
    assert (taken["kind"], taken["n"]) == ("TAKEN", 2)
    assert kinds([record(), got(), got(group="h")]) == []


def test_what_a_group_was_not_given_of_its_topics() -> None:
    rows = [record("a"), record("b"), got("a"), record("v", topic="u"), record("w", sysFlag=4)]
    assert kinds(rows) == [("UNGIVEN", "b")]
    # Where a ledger names no topic, it may be any; and a copy elsewhere was not given.
    assert kinds([*rows[:2], got("a", topic=None), rows[3]]) == [("UNGIVEN", "b"), ("UNGIVEN", "v")]
    copies = [record("a"), record("a", queueOffset=1), got("a", queueId=0, queueOffset=1)]
    missed = [row["queueOffset"] for row in sifted(copies) if row["kind"] == "UNGIVEN"]
    assert missed == [0]


def test_what_has_a_key_or_a_promise_has_a_place_in_an_order() -> None:
    keyed = [record(), sent(orderKey="k", order=4), got(orderKey="k")]
    assert [row["side"] for row in sifted(keyed) if row["kind"] == "ORDERED"] == [1, 2]
    assert (
        kinds([record(), sent(topic=None, orderKey="k"), got(orderKey="k", reconsumeTimes=1)]) == []
    )
    plain = [record(), got(), got("b", group="h"), record("b")]
    ordered = sifted(plain, sieve_for(plain, ordered="g"))
    assert [row["id"] for row in ordered if row["kind"] == "ORDERED"] == ["a"]


class EachJudged(LedgerComparison):
    """Looks at every id."""

    def _fits(self, told: Any) -> Any:
        return np.zeros(len(told.ids), np.bool_)


class NoneJudged(LedgerComparison):
    """Is content with what fits."""

    def _judge_id(self, rows: list[Any]) -> Any:
        raise AssertionError(rows)


def test_what_fits_is_not_looked_at() -> None:
    rows = [record("a"), sent("a"), got("a"), got("a", group="h", queueId=0, queueOffset=0)]
    rows += [
        record("b"),
        sent("b", bodyCrc=7, topic=None),
        got("b", reconsumeTimes=1, queueOffset=9),
    ]
    rows += [
        record("later", bornMs=99),
        record("%", topic="%RETRY%g"),
        record("%", topic="%RETRY%g"),
    ]
    assert sifted(rows, sieve_for(rows, NoneJudged))


NUMBERS = st.sampled_from([None, 0, 1])
COMMON = {
    "id": st.sampled_from("abcd"), "topic": st.sampled_from("tu"), "queueId": st.integers(0, 1),
    "queueOffset": st.integers(0, 1), "bodyCrc": st.integers(7, 8),
}  # fmt: skip
RECORDS = st.fixed_dictionaries({
    **COMMON, "storedMs": st.integers(0, 40), "bornMs": st.integers(0, 20),
    "sysFlag": st.sampled_from([0, 0, 4, 8]), "crcOk": st.booleans(),
    "brokerName": st.sampled_from(["", "b"]), "tags": st.sampled_from([None, "x"]),
})  # fmt: skip
SAID = {
    **COMMON, "topic": st.sampled_from(["t", "u", None]), "queueId": NUMBERS,
    "queueOffset": NUMBERS, "bodyCrc": st.sampled_from([None, 7, 7, 8]),
    "atMs": st.sampled_from([None, 1, 10, 30]), "order": NUMBERS,
    "orderKey": st.sampled_from([None, None, "k"]), "reconsumeTimes": st.sampled_from([0, 0, 1]),
    "group": st.sampled_from("gh"),
}  # fmt: skip


@pytest.mark.lake
@given(
    st.lists(st.builds(lambda row: record() | row, RECORDS), max_size=6),
    st.lists(st.builds(lambda row: sent() | row, st.fixed_dictionaries(SAID)), max_size=5),
    st.lists(st.builds(lambda row: got() | row, st.fixed_dictionaries(SAID)), max_size=6),
    st.sampled_from(["", "g"]),
)
def test_to_look_at_each_id_finds_nothing_else(
    stored: list[Any], produced: list[Any], delivered: list[Any], ordered: str
) -> None:
    rows = [row | {"commitLogOffset": at} for at, row in enumerate(stored)] + produced + delivered
    some, each = (
        Counter(repr(sorted(row.items())) for row in sifted(rows, sieve_for(rows, kind, ordered)))
        for kind in (LedgerComparison, EachJudged)
    )
    assert some == each


@pytest.mark.lake
def test_many_ids_come_in_slices() -> None:
    rows = [sent(f"{number:05}") for number in range(25_000)]
    assert len(kinds(rows)) == 25_000
