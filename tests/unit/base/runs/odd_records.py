"""Records of a log, ordinary and odd ones, drawn at random."""

from random import Random
from struct import pack

from rmq_ha.base.model.message import Address
from rmq_ha.base.model.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rmq_ha.base.store_format.commitlog import Record, encode_blank, encode_record
from rmq_ha.base.store_format.dledger_values import ENTRY_HEADER_SIZE
from tests.unit.base.runs.odd_sends import TOPICS, ordinary_send

HOSTS = (Address(b"\x7f\0\0\1", 10911), Address(bytes(15) + b"\1", 10911))
START = 1 << 40


def record(random: Random, position: int, odd: bool, numbers: dict[tuple[str, int], int]) -> bytes:
    """Return one record, which says that it is at `position`."""
    send = ordinary_send(random)
    topic, born, store = send.topic, HOSTS[0], HOSTS[0]
    text = send.properties.replace("\x02WAIT\x01true", "")
    sys_flag = random.choice((0, 0, 1, 769))
    body, queue_id = send.body, random.randrange(4)
    if random.random() < 0.15:
        sys_flag |= random.choice((4, 8, 12))
    change = random.randrange(12) if odd else -1
    if change == 0:
        topic = random.choice(
            (SCHEDULE_TOPIC, TIMER_TOPIC, ".", "..", "a/b", "a\0b", "é", "T" * 127, "")
        )
    elif change == 1:
        born = HOSTS[1]
    elif change == 2:
        text = random.choice(("", "\x02", "a", "KEYS\x01", "a\x01" + "\0" * 511, "a" + "\0" * 512))
    elif change == 3:
        text = "KEYS\x01" + " ".join(f"k{number}" for number in range(100)) + "\x02KEYS\x01é b"
    number = numbers.get((topic, queue_id), random.randrange(1 << 40))
    if change == 4:
        number += random.choice((-1, 1, 2))
    if not sys_flag & 4:
        numbers[topic, queue_id] = number + 1
    stamp = random.choice((START, START + random.randrange(-9999, 99999), 0, -5, (1 << 63) - 1))
    data = bytearray(
        encode_record(
            Record(
                0, 0, queue_id, 0, 0 if sys_flag & 4 else number, position, sys_flag, 5, born,
                stamp, store, 0, random.choice((0, 77)), body, topic, text,
            )
        )
    )  # fmt: skip
    if change == 5:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif change == 6:
        at = random.choice((0, 4, 8, 20, 28, 36, 84, 88 + len(body)))
        data[at : at + 4] = random.choice((b"\xff\xff\xff\xff", bytes(4), b"\x7f\xff\xff\xff"))
    elif change == 7 and text:
        data[-1] = 0xFF  # no UTF-8
    elif change == 8:
        return encode_blank(1000) + bytes(992)
    elif change == 9 and body:
        data[88] ^= 1
    elif change == 10:
        size = int.from_bytes(data[:4], "big") + random.choice((-1, 1))
        data[:4] = size.to_bytes(4, "big")
    return bytes(data)


def stretch(random: Random, most: int = 20, odd: float = 0.15, gap: int = 0) -> tuple[bytes, int]:
    """
    Return bytes of a log, and the physical offset at which they begin.

    :param gap: 48: with an entry's header of DLedger before each record.
    """
    start = random.randrange(1 << 50)
    numbers: dict[tuple[str, int], int] = {}
    for topic in TOPICS:
        for queue_id in range(4):
            numbers[topic, queue_id] = random.randrange(1 << 40)
    data = b""
    for _ in range(random.randint(1, most)):
        position = start + len(data) + gap
        data_of_one = record(random, position, random.random() < odd, numbers)
        if gap:
            header = bytearray(gap)
            words = [1, len(data_of_one) + ENTRY_HEADER_SIZE]
            if random.random() < odd / 3:
                words[random.randrange(2)] += 1
            header[:8] = pack(">ii", *words)
            place = position - gap + (random.random() < odd / 5)
            header[24:32] = place.to_bytes(8, "big")
            data += header
        data += data_of_one
    return data[: len(data) - random.choice((0, 0, 0, 1, 50, 91))], start
