"""A fleet of small stores, Java's and ours, with faults planted byte by byte."""

import shutil
from pathlib import Path
from struct import pack_into, unpack_from
from zlib import crc32

from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import decode_offset_table
from rmq_ha.lake.scan.fleet.facts import State
from rmq_ha.lake.scan.fleet.scanning import ScanRequest, scan
from rmq_ha.lake.scan.replica.settings import StoreAt
from tests.sim_kit.store_faults.ours import write_our_pair
from tests.unit.lake.spark.golden_stores import java_store

NOW = 1_700_000_000_000
WINDOW = 16384
BODY = 465 + 300
"""A byte of the body of the second record of the fixture `clean`."""
FORGED, FLIPPED, BEHIND, HOLE, TORN = "b01", "b02", "b03", "b04", "b09"


def facts_of(
    store: Path, to: Path, broker: str = "b", broker_id: int = 0, now: int = NOW, **given: object
) -> State:
    """One scan."""
    rest = given.pop("rest", lambda _: None)
    given.setdefault("window", WINDOW)
    asked = ScanRequest(StoreAt(str(store)), str(to), broker, broker_id, "host-1", **given)  # type: ignore[arg-type]
    return scan(asked, lambda: now, rest)  # type: ignore[arg-type]


def forge(file: Path, at: int) -> None:
    """Another body of the record there, and the CRC that fits it."""
    data = bytearray(file.read_bytes())
    (length,) = unpack_from(">i", data, at + 84)
    body = bytes(byte ^ 1 for byte in data[at + 88 : at + 88 + length])
    data[at + 88 : at + 88 + length] = body
    pack_into(">I", data, at + 8, crc32(body) & 0x7FFFFFFF)
    file.write_bytes(data)


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 4
    file.write_bytes(data)


def fleet(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Eleven brokers, 22 stores: seven of Java's, one that was killed and its torn copy, ours."""
    pairs = {}
    clean = java_store("clean", folder / "java")
    for number in range(1, 9):
        name = f"b{number:02}"
        pairs[name] = folder / name / "m", folder / name / "s"
        for store in pairs[name]:
            shutil.copytree(clean, store)
    pairs[TORN] = java_store("killed", folder / TORN / "m"), java_store("torn", folder / TORN / "s")
    for number in (10, 11):
        name = f"b{number}"
        pairs[name] = folder / name / "m", folder / name / "s"
        (folder / name).mkdir()
        write_our_pair(*pairs[name], number, topics=2, queues=1, messages=20)
    return pairs


def harm(pairs: dict[str, tuple[Path, Path]]) -> None:
    """One fault each for four slaves."""
    logs = {name: sorted((slave / "commitlog").iterdir()) for name, (_, slave) in pairs.items()}
    forge(logs[FORGED][0], 465)
    flip(logs[FLIPPED][0], BODY)
    table = pairs[BEHIND][1] / "config" / "consumerOffset.json"
    offsets = {name: dict(row) for name, row in decode_offset_table(table.read_bytes()).items()}
    queues = next(row for row in offsets.values() if max(row.values()) > 3)
    queues[max(queues, key=lambda queue: queues[queue])] -= 3
    table.write_bytes(fastjson.pretty({"offsetTable": offsets}))
    logs[HOLE][1].unlink()


def scanned(pairs: dict[str, tuple[Path, Path]], to: Path) -> None:
    """All of them, masters later than slaves."""
    for name, stores in pairs.items():
        for broker_id in (1, 0):
            facts_of(stores[broker_id], to, name, broker_id)
