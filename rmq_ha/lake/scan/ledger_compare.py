"""
Compares log and ledgers message by message, by id. Messages on which log and ledgers agree are only
counted; every other id is judged by itself.

Rules for whole queues and times are applied later, to the rows that are made here.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmq_ha.lake.scan.arrays import filled, grouped, schema
from rmq_ha.lake.scan.ledger_rows import DELIVERED, PRODUCED, RECORD, SAID, STORED
from rmq_ha.lake.scan.reducing import are_in_queue, are_ordinary, latency_floors, windows_of

COPY, ABSENT, UNPRODUCED, UNLIKE, TWICE, TAKEN, UNGIVEN, ORDERED, VISIBLE, REKEYED, EARLY = range(
    11
)
"""
Kinds of rows:

- COPY: a record whose id its topic has already: `n` counts the records of this id up to this one,
  and `place`, `first` and `firstCrc` say where it is, where the first one is, and its checksum;
- ABSENT: a ledger's row whose id is nowhere in the log;
- UNPRODUCED: a record that no producer recorded; UNLIKE: a record whose body differs from the body
  that a ledger has for its id; with the side DELIVERED a group received the other body;
- VISIBLE: a record of a transaction that its producer rolled back; REKEYED: a record whose keys
  differ from the producer's;
- EARLY: a delivery at `atMs`, before its record was born and stored;
- TWICE: a delivery that a group was given `n` times;
- TAKEN: counts of deliveries; UNGIVEN: a record that a group was not given;
- ORDERED: a ledger's row that has a place in an order, and where its record lies. A copy of a
  message has no place of its own in the order.
"""

_COUNTS = ("window", "latency", "n", "leastOffset", "mostOffset", "leastMs", "mostMs")
SCHEMA = schema(
    f"kind:int {RECORD} {SAID} {' '.join(f'{name}:long' for name in _COUNTS)}"
    " place:string first:string firstCrc:long"
)
_OF_RECORD, _OF_LEDGER = schema(RECORD).names, schema(SAID).names
_OF_COUNT = ("group", "brokerName", "topic", "queueId", "window", "latency")
COMMITTED = ("COMMIT_MESSAGE", "COMMIT")
ROLLED_BACK = ("ROLLBACK_MESSAGE", "ROLLBACK")
"""Values of `transactionState` with which a producer records how it ended a transaction."""
_NEVER = (1, 0)
_SLICE = 10_000
_NONE = np.iinfo(np.int64).min
_Row = dict[str, Any]


class LedgerSpan(NamedTuple):
    """
    The rows of a group and a topic in a ledger.

    :ivar topic: None: the rows name no topic.
    :ivar since: the earliest time of a row, in ms since the epoch; None: no row has a time.
    :ivar until: the latest time of a row, in ms since the epoch.
    """

    topic: str | None
    group: str
    rows: int
    since: int | None
    until: int | None


def _groups_by_topic(given: Sequence[LedgerSpan]) -> dict[str | None, set[str]]:
    """Return the groups that consumed each topic; None stands for rows that name no topic."""
    groups: dict[str | None, set[str]] = {}
    for span in given:
        groups.setdefault(span.topic, set()).add(span.group)
    return groups


def _send_times(sent: Sequence[LedgerSpan]) -> dict[str | None, tuple[int, int]]:
    """
    Return the first and the last time, ms, at which producers recorded a send, by topic.

    Outside of these times no ledger says whether a producer sent a record, so the record is not
    judged. Rows without a topic say so about no record.
    """
    times: dict[str | None, tuple[int, int]] = {}
    for span in sent:
        if span.topic is None or span.since is None or span.until is None:
            continue
        first, last = times.get(span.topic, (span.since, span.until))
        times[span.topic] = min(first, span.since), max(last, span.until)
    return times


class LedgerComparison:
    """Compares all rows that log and ledgers have for an id."""

    def __init__(
        self,
        window_ms: int,
        sent: Sequence[LedgerSpan],
        given: Sequence[LedgerSpan],
        ordered: Collection[str],
        grace_ms: int = 10_000,
    ) -> None:
        """
        :param ordered: groups that promise the order of each queue.
        :param grace_ms: by how much the clocks of brokers, producers and consumers may differ.
        """
        self._grace_ms = grace_ms
        self._window_ms = window_ms
        self._ordered = ordered
        self._groups_by_topic = _groups_by_topic(given)
        self._send_times = _send_times(sent)

    def batches(self, told: Iterable[Any]) -> Iterator[Any]:
        """Compare all rows of some ids, batches of `TOLD`, and yield the rows of the result."""
        held = list(told)
        if held:
            parts = self._compare(_Columns(pa.Table.from_batches(held)))
            yield from (part for part in parts if len(part))

    def _compare(self, told: "_Columns") -> Iterator[Any]:
        """
        Yield the result in parts: what is wrong with single ids, counts, and rows for other rules.

        Ids that fit are handled as columns. Only the others are judged row by row in Python.
        """
        fits = self._fits(told)
        sent, given = (told.pairs(rows[fits[told.code[rows]]]) for rows in told.ledgers)
        placed: list[tuple[int, int]] = []
        matched: list[tuple[int, int]] = []
        judged: list[_Row] = []
        copies: list[int] = []
        for rows in told.by_id(np.flatnonzero(~fits[told.code])):
            results = list(self._judge_id(rows))
            copies += [row["row"] for row in results if row["kind"] == COPY]
            judged += results
            placed += _match_sends(rows)
            matched += _match_deliveries(rows)
            if len(judged) >= _SLICE:
                yield pa.RecordBatch.from_pylist(judged, schema=SCHEMA)
                judged.clear()
        yield pa.RecordBatch.from_pylist(judged, schema=SCHEMA)
        sent, given = _append_pairs(sent, placed), _append_pairs(given, matched)
        yield self._count_deliveries(told, *given)
        yield from self._missing_deliveries(told, *given)
        keyed = told.has_key[sent[0]] & (told.topic[sent[0]] >= 0)
        promised = told.are_of(given[0], self._ordered) | told.has_key[given[0]]
        promised &= (told.times[given[0]] == 0) & ~np.isin(given[1], copies)
        for rows, records in sent[:, keyed], given[:, promised]:
            yield filled(
                told.records(records) | told.ledger_columns(rows) | {"kind": ORDERED}, SCHEMA
            )

    def _fits(self, told: "_Columns") -> Any:
        """
        Return for each id whether nothing about it needs judging: it is stored once and all rows
        agree, or it is in no ledger and only in topics of the broker itself.
        """
        said, own = told.side != STORED, told.count(told.own)
        fits = (own == 1) | ((own == 0) & (told.count(said) == 0))
        for rows in (self._contradicted_rows(told), self._unsent_rows(told), told.repeated):
            fits[told.code[rows]] = False
        return fits

    def _contradicted_rows(self, told: "_Columns") -> Any:
        """Return the rows of ledgers that do not agree with the record of their id."""
        said = np.flatnonzero(told.side != STORED)
        records = told.record[told.code[said]]
        is_other = (told.topic[said] >= 0) & (told.topic[said] != told.topic[records])
        is_other |= (told.crc[said] != _NONE) & (told.crc[said] != told.crc[records])
        is_elsewhere = told.queue[said] != told.queue[records]
        is_elsewhere |= told.offset[said] != told.offset[records]
        # For a retry the place is that of the retry, not of the message.
        is_elsewhere &= (told.offset[said] != _NONE) & (told.times[said] == 0)
        has_keys = (told.keys[said] != _NONE) & (told.keys[records] != _NONE)
        is_other |= has_keys & (told.keys[said] != told.keys[records])
        is_other |= told.is_rolled_back[said]
        is_other |= self._are_early(told.at[said], told.born[records], told.stored[records])
        return said[is_other | (is_elsewhere & (told.side[said] == DELIVERED))]

    def _are_early(self, at: Any, born: Any, stored: Any) -> Any:
        """Return for each of these times whether it lies before the message existed."""
        return (at != _NONE) & (at < np.minimum(born, stored) - self._grace_ms)

    def _unsent_rows(self, told: "_Columns") -> Any:
        """Return the records that no producer recorded, though producers recorded that time."""
        own = np.flatnonzero(told.own)
        spans = [self._send_times.get(name, _NEVER) for name in told.topics]
        since, until = np.array([*spans, _NEVER], np.int64)[told.topic[own]].T
        born, times = told.born[own], told.count(told.side == PRODUCED)[told.code[own]]
        return own[(times == 0) & (born >= since) & (born <= until)]

    def _judge_id(self, rows: list[_Row]) -> Iterator[_Row]:
        """Yield the rows of the result for one id that does not fit, by all rows of the id."""
        stored, produced, delivered = _sides(rows)
        own = [row for row in stored if row["own"]]
        if not stored:
            yield from ({**row, "kind": ABSENT} for row in rows)
        yield from _copies(own)
        for row in own:
            since, until = self._send_times.get(row["topic"], _NEVER)
            if not produced and since <= row["bornMs"] <= until:
                yield {**row, "kind": UNPRODUCED}
            keys = _values_of(produced, "keysHash", row["topic"])
            if keys and row["keysHash"] is not None and row["keysHash"] not in keys:
                yield {**row, "kind": REKEYED}
            states = _values_of(produced, "transactionState", row["topic"])
            if states.intersection(ROLLED_BACK) and not states.intersection(COMMITTED):
                yield {**row, "kind": VISIBLE}
        yield from self._deliveries(rows)
        yield from _find_repeated(delivered)

    def _deliveries(self, rows: list[_Row]) -> Iterator[_Row]:
        """Compare the deliveries that consumers recorded with the records in the log."""
        stored, produced, delivered = _sides(rows)
        of_number = {row["row"]: row for row in rows}
        pairs = [(of_number[taken], of_number[place]) for taken, place in _match_deliveries(rows)]
        for row in stored:
            if not (row["own"] and row["crcOk"]):
                continue
            sent = _values_of(produced, "bodyCrc", row["topic"])
            if row["bodyCrc"] not in (sent or _values_of(delivered, "bodyCrc", row["topic"])):
                if sent or _values_of(delivered, "bodyCrc", row["topic"]):
                    yield {**row, "kind": UNLIKE}
                continue
            for delivery, record in pairs:
                is_other = delivery["bodyCrc"] not in (None, row["bodyCrc"], *sent)
                if record is row and is_other:
                    told = {name: delivery[name] for name in ("group", "atMs", "side")}
                    yield {**row, **told, "kind": UNLIKE, "firstCrc": delivery["bodyCrc"]}
        for delivery, record in pairs:
            at, times = delivery["atMs"], (record["bornMs"], record["storedMs"])
            if at is not None and self._are_early(at, *times):
                yield {**record, "kind": EARLY, "group": delivery["group"], "atMs": at}

    def _count_deliveries(self, told: "_Columns", given: Any, records: Any) -> Any:
        """Return the rows TAKEN: deliveries by group, queue, window and latency."""
        columns = told.records(records)
        offset, stored = columns["queueOffset"], columns["storedMs"]
        born, at = told.born[records], told.at[given]
        # Without a time the latency is not known, and neither is it if clocks disagree.
        late = np.where(at == _NONE, -1, latency_floors(at - stored.to_numpy()))
        columns |= told.ledger_columns(given) | {
            "window": pa.array(windows_of(born, self._window_ms)),
            "latency": pa.array(late),
            "n": pa.array(np.ones(len(given), np.int64)),
        }
        columns |= dict(zip(_COUNTS[3:], (offset, offset, stored, stored), strict=True))
        how = dict(zip(_COUNTS[2:], ("sum", "min", "max", "min", "max"), strict=True))
        return filled(grouped(columns, _OF_COUNT, how) | {"kind": TAKEN}, SCHEMA)

    def _missing_deliveries(self, told: "_Columns", given: Any, records: Any) -> Iterator[Any]:
        """Yield the rows of the kind UNGIVEN: for each group the records that it was not given."""
        # A group that does not name its topics may be given messages of any.
        anywhere = self._groups_by_topic.get(None, set())
        of_topics = [anywhere | self._groups_by_topic.get(name, set()) for name in told.topics]
        own = np.flatnonzero(told.own)
        for group in sorted(set().union(*of_topics)):
            of_topic = np.array([group in groups for groups in of_topics])
            missed = told.own & of_topic[told.topic]
            missed[records[told.are_of(given, [group])]] = False
            rows = own[missed[own]]
            yield filled(told.records(rows) | {"group": group, "kind": UNGIVEN}, SCHEMA)


class _Columns:
    """
    Rows as columns of numpy: texts become numbers; a missing value is -1 or `_NONE`.

    :ivar code: for each row the number of its id.
    :ivar own: whether each row is a record that a producer sent and consumers can be given.
    :ivar times: how often consumers had sent the message of a delivery back.
    :ivar is_rolled_back: whether each row says that its producer rolled the transaction back.
    """

    def __init__(self, rows: Any) -> None:
        self._rows = {name: rows[name].combine_chunks() for name in rows.column_names}
        self.side = self._rows["side"].to_numpy()
        self.ids, self.code = self._encode_texts("id")
        topics, self.topic = self._encode_texts("topic")
        self.topics = topics.to_pylist()
        # Messages that producers sent, and that consumers can be given.
        self.own = are_in_queue(self._rows["sysFlag"].fill_null(0).to_numpy())
        self.own &= (self.side == STORED) & are_ordinary(self._rows["topic"].fill_null(""))
        self._rows["own"] = pa.array(self.own)
        groups, self._group = self._encode_texts("group")
        self._groups = groups.to_pylist()
        (
            self.queue, self.offset, self.at, self.born, self.stored, self.crc, self.times,
            self.keys,
        ) = (
            self._rows[name].cast(pa.int64()).fill_null(_NONE).to_numpy()
            for name in (
                "queueId", "queueOffset", "atMs", "bornMs", "storedMs", "bodyCrc", "reconsumeTimes",
                "keysHash",
            )
        )  # fmt: skip
        states = pa.array(ROLLED_BACK, pa.string())
        self.is_rolled_back = pc.is_in(self._rows["transactionState"], states).to_numpy(
            zero_copy_only=False
        )
        self.has_key = self._rows["orderKey"].is_valid().to_numpy(zero_copy_only=False)

    def _encode_texts(self, name: str) -> tuple[Any, Any]:
        """Return the different texts of a column, and for each row the number of its text."""
        encoded = self._rows[name].dictionary_encode()
        return encoded.dictionary, encoded.indices.fill_null(-1).to_numpy().astype(np.int64)

    @property
    def ledgers(self) -> tuple[Any, Any]:
        """Return the rows of the producers' ledger, and the rows of the consumers' ledger."""
        return np.flatnonzero(self.side == PRODUCED), np.flatnonzero(self.side == DELIVERED)

    def pairs(self, rows: Any) -> Any:
        """Return two lines: these rows, and for each the row of its id's record."""
        return np.stack([rows, self.record[self.code[rows]]])

    def count(self, mask: Any) -> Any:
        """Return for each id how many of these rows it has."""
        return np.bincount(self.code[mask], minlength=len(self.ids))

    @cached_property
    def record(self) -> Any:
        """For each id the row of its record, which a producer sent; 0: it has none."""
        records = np.zeros(len(self.ids), np.int64)
        own = np.flatnonzero(self.own)
        records[self.code[own]] = own
        return records

    @property
    def repeated(self) -> Any:
        """Return the deliveries of ids that were delivered to the same group before."""
        rows = self.ledgers[1]
        mixed = self._group[rows] * len(self.ids) + self.code[rows]
        return np.delete(rows, np.unique(mixed, return_index=True)[1])

    def are_of(self, rows: Any, groups: Iterable[str]) -> Any:
        known = [self._groups.index(name) for name in groups if name in self._groups]
        return np.isin(self._group[rows], known)

    def by_id(self, rows: Any) -> Iterator[list[_Row]]:
        """Yield the rows of each id, each with its number, `row`."""
        rows = rows[np.argsort(self.code[rows], kind="stable")]
        starts = np.flatnonzero(np.diff(self.code[rows])) + 1
        cuts = starts[np.flatnonzero(np.diff(starts // _SLICE, prepend=0))]
        for part in np.split(rows, cuts):
            columns = {name: column.take(pa.array(part)) for name, column in self._rows.items()}
            every = pa.table(columns | {"row": pa.array(part)}).to_pylist()
            for _, some in groupby(every, key=lambda row: row["id"]):
                yield list(some)

    def records(self, rows: Any) -> dict[str, Any]:
        """Return the columns of the log for these rows."""
        return {name: self._rows[name].take(pa.array(rows)) for name in _OF_RECORD}

    def ledger_columns(self, rows: Any) -> dict[str, Any]:
        """Return the columns that only ledgers fill, for these rows."""
        return {name: self._rows[name].take(pa.array(rows)) for name in _OF_LEDGER}


def _sides(rows: list[_Row]) -> tuple[list[_Row], ...]:
    """Return the rows of the log, those of the producers' ledger, and those of the consumers'."""
    return tuple(
        [row for row in rows if row["side"] == side] for side in (STORED, PRODUCED, DELIVERED)
    )


def _values_of(rows: list[_Row], name: str, topic: str | None) -> set[Any]:
    """Return the values of a column in the rows of a ledger for a topic."""
    mine = (row[name] for row in rows if row["topic"] in (None, topic))
    return {value for value in mine if value is not None}


def _in_order(own: list[_Row]) -> list[_Row]:
    """Return records by topic as they were stored: by the log, of several brokers by time."""
    begun: dict[tuple[str, str], tuple[int, int]] = {}
    for row in own:
        place = row["commitLogOffset"], row["storedMs"]
        of = row["topic"], row["brokerName"]
        begun[of] = min(place, begun.get(of, place))

    def order(row: _Row) -> tuple[Any, ...]:
        topic, broker = row["topic"], row["brokerName"]
        return topic, begun[topic, broker][1], broker, row["commitLogOffset"]

    return sorted(own, key=order)


def _copies(own: list[_Row]) -> Iterator[_Row]:
    """Yield a row of the kind COPY for each record of a topic after the first one of its id."""
    for _, copies in groupby(_in_order(own), key=lambda row: row["topic"]):
        first, *others = copies
        of_first = {"first": _place(first), "firstCrc": first["bodyCrc"]}
        for number, row in enumerate(others, 2):
            yield {**row, **of_first, "kind": COPY, "n": number, "place": _place(row)}


def _place(row: _Row) -> str:
    broker = f"{row['brokerName']}/" if row["brokerName"] else ""
    return f"{broker}{row['topic']}/{row['queueId']}@{row['queueOffset']}"


def _find_repeated(delivered: list[_Row]) -> Iterator[_Row]:
    """Yield a row of the kind TWICE for each delivery that a group recorded several times."""
    same: dict[tuple[Any, ...], list[_Row]] = defaultdict(list)
    for row in delivered:
        names = ("group", "topic", "reconsumeTimes", "queueId", "queueOffset")
        same[tuple(row[name] for name in names)].append(row)
    for rows in same.values():
        if len(rows) > 1:
            last = max((row["atMs"] for row in rows if row["atMs"] is not None), default=None)
            yield {**rows[0], "kind": TWICE, "n": len(rows), "atMs": last, "brokerName": None}


def _match_deliveries(rows: list[_Row]) -> Iterator[tuple[int, int]]:
    """
    Yield the deliveries of an id, each with the record that was delivered.

    A message that comes again through a retry topic is matched with the record in its original
    topic.
    """
    stored, _, delivered = _sides(rows)
    own = [row for row in stored if row["own"]]
    at: dict[int, list[_Row]] = defaultdict(list)
    for record in own:
        at[record["queueOffset"]].append(record)
    for given in delivered:
        # The place tells copies of a message apart. For a retry the place is that of the retry.
        says_where = not given["reconsumeTimes"] and given["queueOffset"] is not None
        for record in at[given["queueOffset"]] if says_where else own:
            is_queue = not says_where or given["queueId"] in (None, record["queueId"])
            if is_queue and given["topic"] in (None, record["topic"]):
                yield given["row"], record["row"]


def _match_sends(rows: list[_Row]) -> Iterator[tuple[int, int]]:
    """Yield each sent message with its first record in the log."""
    stored, produced, _ = _sides(rows)
    own = _in_order([row for row in stored if row["own"]])
    first = {row["topic"]: row["row"] for row in reversed(own)}
    for sent in produced:
        if sent["topic"] in first:
            yield sent["row"], first[sent["topic"]]


def _append_pairs(pairs: Any, others: list[tuple[int, int]]) -> Any:
    return np.concatenate([pairs, np.array(others, np.int64).reshape(-1, 2).T], axis=1)
