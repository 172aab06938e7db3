"""
Faults of five kinds more, planted byte by byte: nothing here knows how the readers read.

The store is one of Java's: three log files, three index files, a committed transaction and a
message that was sent back.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from struct import pack, pack_into, unpack_from
from typing import Any
from zlib import crc32

import pytest

from tests.spark.planting import Said, messages, replica

FIXTURE = Path(__file__).parents[1] / "fixtures" / "store" / "clean.tar.gz"
FILE_SIZE = 65536
MAGIC = 0xDAA320A7
COMMITTED = b"FD0000000000000000000000000000022FC35FFD2B276894C95400A3"
SENT_BACK = b"FD0000000000000000000000000000022FC35FFD2B276894C6700000"


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A master and its slave, equal."""
    shutil.unpack_archive(FIXTURE, tmp_path)
    shutil.copytree(tmp_path / "clean", tmp_path / "slave")
    return tmp_path / "clean", tmp_path / "slave"


def placed(store: Path) -> Iterator[tuple[Path, int, int]]:
    """File, place and size of each record, in their order."""
    for file in sorted((store / "commitlog").iterdir()):
        data, at = file.read_bytes(), 0
        while at + 8 <= len(data):
            size, magic = unpack_from(">iI", data, at)
            if magic != MAGIC:
                break
            yield file, at, size
            at += size


def change(file: Path, at: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(data)


def forge(file: Path, at: int, size: int) -> None:
    """Another body, and the CRC that fits it."""
    record = bytearray(file.read_bytes()[at : at + size])
    born, stored = (4 if not record[39] & bit else 16 for bit in (0x10, 0x20))
    body_at = 80 + born + stored
    (length,) = unpack_from(">i", record, body_at - 4)
    body = bytes(byte ^ 1 for byte in record[body_at : body_at + length])
    record[body_at : body_at + length] = body
    pack_into(">I", record, 8, crc32(body) & 0x7FFFFFFF)
    change(file, at, bytes(record))


def give_another_id(store: Path, topic: bytes, key: bytes) -> None:
    """The message with this unique id in a topic gets one that nobody knows."""
    for file, at, size in placed(store):
        record = file.read_bytes()[at : at + size]
        where = record.find(key)
        if where >= 0 and bytes([len(topic)]) + topic in record[:where]:
            change(file, at + where + len(key) - 1, b"F")
            return
    raise AssertionError(f"no {key!r} in {topic!r}")


def only(said: Said, code: str) -> Any:
    (found,) = [one for one in said.findings if one.code == code]
    assert found.severity == "ERROR"
    assert said.result.outcome == 1
    return found


def test_a_log_file_that_is_gone_hides_nothing_of_the_others(
    spark: Any, pair: tuple[Path, Path]
) -> None:
    master, slave = pair
    files = sorted((slave / "commitlog").iterdir())
    files[1].unlink()
    last = [each for each in placed(slave) if each[0] == files[2]][5]
    forge(*last)
    said = replica(spark, master, slave)
    assert only(said, "LOG_HOLE").physical_offset == FILE_SIZE
    assert only(said, "LOG_DIFFERS").physical_offset == 2 * FILE_SIZE + last[1]


def test_an_index_that_only_one_side_has(spark: Any, pair: tuple[Path, Path]) -> None:
    master, slave = pair
    shutil.rmtree(slave / "index")
    assert only(replica(spark, master, slave), "INDEX_MISSING").broker == str(slave)


def test_a_tail_that_each_side_wrote_for_itself_is_one_finding(
    spark: Any, pair: tuple[Path, Path]
) -> None:
    master, slave = pair
    tail = list(placed(slave))[-12:]
    for each in tail:
        forge(*each)
    said = replica(spark, master, slave)
    found = only(said, "DIVERGED")
    assert found.physical_offset == int(tail[0][0].name) + tail[0][1]
    assert "to the end, 12 messages on each side" in found.detail
    assert "LOG_DIFFERS" not in said.codes


def body_of(file: Path, at: int) -> tuple[int, bytes]:
    """Where it lies, and the body; hosts are IPv4 here."""
    (length,) = unpack_from(">i", file.read_bytes(), at + 84)
    return at + 88, file.read_bytes()[at + 88 : at + 88 + length]


def sent_of(store: Path, ledger: Path, ids: dict[int, bytes]) -> None:
    """What the producers of these records said, in their order, also of the bodies."""
    each = list(placed(store))
    lines = []
    for number, key in ids.items():
        file, at, _ = each[number]
        crc = crc32(body_of(file, at)[1])
        lines.append(json.dumps({"msgId": key.decode(), "bodyCrc": crc, "sentAt": 0}))
    ledger.write_text("\n".join(lines) + "\n")


def with_ids(store: Path) -> dict[int, bytes]:
    """Records that have an id of their producer, by their number."""
    found: dict[int, bytes] = {}
    for number, (file, at, size) in enumerate(placed(store)):
        _, mark, rest = file.read_bytes()[at : at + size].partition(b"UNIQ_KEY\x01")
        if mark:
            found[number] = rest[:56].split(b"\x02")[0]
    return found


def test_a_body_that_was_damaged_and_one_that_was_forged(
    spark: Any, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    """The damaged one does not fit its CRC; of the other only the ledger knows."""
    store, _ = pair
    ids = with_ids(store)
    ledger = tmp_path / "produced.jsonl"
    sent_of(store, ledger, ids)
    each, (damaged, forged) = list(placed(store)), sorted(ids)[5:7]
    file, at, _ = each[damaged]
    where, body = body_of(file, at)
    change(file, where, bytes([body[0] ^ 1]))
    forge(*each[forged])
    said = messages(spark, store, produced=str(ledger))
    places = {one.code: one.physical_offset for one in said.errors}
    assert places == {
        "BAD_CRC": int(file.name) + at,
        "BODY_CHANGED": int(each[forged][0].name) + each[forged][1],
    }
    assert len(said.errors) == 2


def test_a_committed_message_that_no_topic_has(
    spark: Any, pair: tuple[Path, Path], tmp_path: Path
) -> None:
    store, _ = pair
    give_another_id(store, b"TopicC", COMMITTED)
    ledger = tmp_path / "produced.jsonl"
    said = {"topic": "TopicC", "msgId": COMMITTED.decode(), "sentAt": "2026-11-21T07:23:00Z"}
    ledger.write_text(json.dumps({**said, "transactionState": "COMMIT_MESSAGE"}) + "\n")
    found = only(messages(spark, store, produced=str(ledger)), "COMMIT_LOST")
    assert (found.topic, found.msg_id) == ("TopicC", COMMITTED.decode())


def test_a_message_that_was_sent_back_and_never_came(spark: Any, pair: tuple[Path, Path]) -> None:
    store, _ = pair
    give_another_id(store, b"%RETRY%CG_fixture", SENT_BACK)
    *_, (file, at, _) = placed(store)  # of IPv4 hosts; stored so late that all was due long before
    (stored,) = unpack_from(">q", file.read_bytes(), at + 56)
    change(file, at + 56, pack(">q", stored + 600_000))
    assert only(messages(spark, store), "RETRY_LOST").msg_id == SENT_BACK.decode()
