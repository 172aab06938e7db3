"""Faults that audits passed over, and ordinary life that was many errors: one finding each."""

import json
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rmq_ha.lake.spark.audit.job import audit
from rmq_ha.lake.spark.audit.stored_rows import AuditRequest
from rmq_ha.ops.offsets.places import StorePlace
from tests.kits.bare_stores import START_MS, BareStore, Message, Placed, delayed, ordinary
from tests.spark.jobs import FakeJob

Row = dict[str, Any]


def told(engine: Any, store: Path, folder: Path, **ledgers: Sequence[Row]) -> Counter[Any]:
    """Audit a store; return the errors and warnings by code, topic and queue offset."""
    given = {}
    for name, rows in ledgers.items():
        given[name] = str(folder / f"{name}.jsonl")
        Path(given[name]).write_text("\n".join(map(json.dumps, rows)))
    job: Any = FakeJob(engine, START_MS)
    result = audit(job, AuditRequest(places=[StorePlace(str(store))], **given))
    rows = result.findings.where("severity <> 'INFO'").select("code", "topic", "queueOffset")
    return Counter(map(tuple, rows.collect()))


def sent(placed: Placed, **more: Any) -> Row:
    message = placed.message
    return {
        "topic": message.topic, "msgId": message.uniq, "sentAt": START_MS + message.stored,
        "status": "SEND_OK", "queueId": message.queue_id, "queueOffset": placed.queue_offset,
        "bodyCrc": zlib.crc32(message.body), "keys": message.key, **more,
    }  # fmt: skip


def given(placed: Placed, **more: Any) -> Row:
    row = sent(placed, group="CG", deliveredAt=START_MS + placed.message.stored + 5)
    return {name: row[name] for name in row if name not in ("sentAt", "status", "keys")} | more


def test_each_fault_is_one_finding(engine: Any, tmp_path: Path) -> None:
    store = BareStore(log_size=1 << 18)
    plain = [store.add(message) for message in ordinary(60)]
    produced, delivered = list(map(sent, plain)), list(map(given, plain))
    wanted: list[tuple[str, str, int]] = []

    def add(uniq: str, **fields: Any) -> Placed:
        stored = 2400 + 10 * len(store.placed)
        return store.add(Message("Topic0", 0, b"more", uniq=uniq, stored=stored, **fields))

    rolled = add("R1", sys_flag=8)
    produced.append(sent(rolled, transactionState="ROLLBACK_MESSAGE"))
    wanted.append(("ROLLBACK_VISIBLE", "Topic0", rolled.queue_offset))
    flagged = add("F1", sys_flag=1)
    produced.append(sent(flagged))
    wanted.append(("NOT_COMPRESSED", "Topic0", flagged.queue_offset))
    produced[10]["keys"] = "another"
    produced[12]["keys"] = "  ".join(plain[12].message.key.split())  # only the blanks differ
    wanted.append(("KEYS_CHANGED", plain[10].message.topic, plain[10].queue_offset))
    delivered[20]["bodyCrc"] ^= 0x5555
    wanted.append(("DELIVERED_CHANGED", plain[20].message.topic, plain[20].queue_offset))
    delivered[31]["deliveredAt"] -= 7_200_000
    wanted.append(("DELIVERED_EARLY", plain[31].message.topic, plain[31].queue_offset))
    # One row for a batch has one CRC and one text of keys.
    batch = [add(uniq) for uniq in ("B1", "B2")]
    produced.append(sent(batch[0], msgId="B1,B2", bodyCrc=1, keys="x"))
    # The second of a sequence was sent again, because its answer was lost.
    row = [add(f"O{number}") for number in range(6)]
    again = add("O1")
    produced += [sent(one, orderKey="k", sequence=at) for at, one in enumerate(row)]
    delivered += [given(one, orderKey="k", sequence=at) for at, one in enumerate([*row, again])]
    wanted.append(("DUPLICATE", "Topic0", again.queue_offset))
    # Of level 14 (ten minutes) one came after 50 ms; of level 2 nothing came, though its broker
    # says that it delivered all.
    early = Message("Topic1", 1, b"early", uniq="E1", stored=4000)
    waiting = store.add(delayed(early, 14))
    copy = store.add(early._replace(stored=4050))
    produced.append(sent(copy, sentAt=START_MS + 4000))
    wanted.append(("DELAY_EARLY", "SCHEDULE_TOPIC_XXXX", waiting.queue_offset))
    lost = [
        store.add(delayed(Message("Topic1", 1, b"late", uniq=f"L{at}", stored=4100 + at), 2))
        for at in range(3)
    ]
    store.delays = {2: 3, 14: 1}
    wanted += [("DELAY_NOT_DELIVERED", "SCHEDULE_TOPIC_XXXX", one.queue_offset) for one in lost]
    root = store.save(tmp_path / "store")
    found = told(engine, root, tmp_path, produced=produced, delivered=delivered)
    assert found == Counter(wanted)


def test_retention_and_one_stamp_of_tomorrow(here: Any, tmp_path: Path) -> None:
    """A ledger without times: what is below the first offset of its queue was deleted."""
    store = BareStore(log_size=1 << 14)
    plain = [store.add(message) for message in ordinary(200)]
    for number in range(12):  # they wait for ten minutes, and nobody has to have them yet
        late = Message("Topic1", 1, b"wait", uniq=f"W{number}", stored=8100 + number)
        store.add(delayed(late, 14))
    tomorrow = Message("Topic0", 0, b"tomorrow", uniq="T1", stored=86_400_000, born=8200)
    store.add(tomorrow)
    plain += [
        store.add(one._replace(uniq=f"9{one.uniq[1:]}", stored=one.stored + 70_000))
        for one in ordinary(9)
    ]
    store.delays = {14: 0}
    root = store.save(tmp_path / "store")
    (root / "commitlog" / f"{0:020}").unlink()
    produced = [sent(one, sentAt=None) for one in plain]
    last = plain[-1]
    produced.append(sent(last, sentAt=None, msgId="GONE", queueOffset=last.queue_offset - 1))
    produced.append(sent(last, sentAt=None, msgId="NOBODY_KNOWS", queueOffset=None))
    found = told(here, root, tmp_path, produced=produced)
    assert found == Counter(
        [
            ("CLOCK_BACK", None, None),
            ("LOST", last.message.topic, last.queue_offset - 1),
            ("LOST_OR_EXPIRED", last.message.topic, None),
        ]
    )
