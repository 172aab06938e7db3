"""
Faults of messages, planted byte by byte into one store: nothing here knows how the readers read.

`tests/unit/lake/spark/test_byte_faults.py` has those of files, without Spark.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from struct import pack, unpack_from
from typing import Any
from zlib import crc32

from tests.spark.planting import messages
from tests.unit.lake.spark.byte_faults import (
    body_of,
    change,
    damage,
    equal_pair,
    forge,
    give_another_id,
    in_topic,
    offset,
    placed,
    with_ids,
)

COMMITTED = b"FD0000000000000000000000000000022FC35FFD2B276894C95400A3"
SENT_BACK = b"FD0000000000000000000000000000022FC35FFD2B276894C6700000"


def produced(store: Path, ledger: Path) -> None:
    """What the producers of a store said, also of the bodies."""
    each, rows = list(placed(store)), {}
    for number, key in with_ids(store).items():
        file, at, _ = each[number]
        crc = crc32(body_of(file, at))
        rows[key] = {"msgId": key.decode(), "bodyCrc": crc, "sentAt": 0}
    rows[COMMITTED] |= {"topic": "TopicC", "transactionState": "COMMIT_MESSAGE"}
    ledger.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))


def stored_later(store: Path, numbers: Iterable[int], ms: int) -> None:
    """Times of records, moved."""
    each = list(placed(store))
    for number in numbers:
        file, at, _ = each[number]
        (stored,) = unpack_from(">q", file.read_bytes(), at + 56)
        change(file, at + 56, pack(">q", stored + ms))


def test_faults_of_many_kinds_in_one_store_are_a_finding_each(engine: Any, tmp_path: Path) -> None:
    """Only of the forged body, the commit and what was lost does the ledger know."""
    store, _ = equal_pair(tmp_path)
    ledger = tmp_path / "produced.jsonl"
    produced(store, ledger)
    each = list(placed(store))
    plain = with_ids(store, in_topic(b"TopicA"))
    damaged, forged, lost, *_ = sorted(set(plain) - {0, 1, 2})[5::3]
    damage(*each[damaged][:2])
    forge(*each[forged][:2])
    give_another_id(store, b"TopicA", plain[lost])
    delayed = with_ids(store, lambda record: b"REAL_TOPIC\x01TopicB\x02" in record)
    (late, *_) = delayed.values()
    give_another_id(store, b"TopicB", late)
    give_another_id(store, b"TopicC", COMMITTED)
    give_another_id(store, b"%RETRY%CG_fixture", SENT_BACK)
    stored_later(store, range(damaged + 40, damaged + 45), -3_600_000)
    stored_later(store, [len(each) - 1], 600_000)  # all that was due was due long before
    said = messages(engine, store, produced=str(ledger))
    found = {(one.code, one.msg_id) for one in said.errors}
    # What was delayed for longer is due now, too, and this log ends before it came.
    others = {("DELAY_NOT_DELIVERED", key.decode()) for key in delayed.values() if key != late}
    assert found - others == {
        ("BAD_CRC", plain[damaged].decode()),
        ("BODY_CHANGED", plain[forged].decode()),
        ("LOST", plain[lost].decode()),
        ("DELAY_NOT_DELIVERED", late.decode()),
        ("COMMIT_LOST", COMMITTED.decode()),
        ("RETRY_LOST", SENT_BACK.decode()),
    }
    assert len(said.errors) == len(found)
    places = {one.code: one.physical_offset for one in said.findings}
    assert places["BAD_CRC"] == offset(*each[damaged][:2])
    assert places["BODY_CHANGED"] == offset(*each[forged][:2])
    assert "CLOCK_BACK" in said.codes
    assert said.result.outcome == 1
