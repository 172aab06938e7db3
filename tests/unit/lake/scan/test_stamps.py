"""Between which times a log was written, though single stamps are wrong."""

import zlib

import numpy as np
import pytest

from rmq_ha.lake.scan.log.records import Records
from rmq_ha.lake.scan.log.walk import walk
from rmq_ha.lake.scan.reducing import UNREADABLE, Reduction
from rmq_ha.lake.scan.stamps import Stamps, trusted_times
from tests.kits.bare_stores import START_MS, Message, record

DAY = 86_400_000


def log(*times: int, each: int = 1) -> list[Stamps]:
    """Messages in the order of the log, `each` of them with each of these times."""
    return [Stamps(at, at, 100 * n, 100 * n + 99, each) for n, at in enumerate(times)]


@pytest.mark.parametrize(
    ("times", "oldest", "newest"),
    [
        ((5, 6, 7), 5, 7),
        ((5,), 5, 5),
        ((5, DAY, 6, 7), 5, 7),  # one stamp of tomorrow, and the log goes on
        ((5, 0, DAY, 2 * DAY, 6), 0, 6),
        ((5, 6, 7, DAY), 5, DAY),  # nothing behind it contradicts: the broker was idle for a day
        ((DAY, 1, DAY + 1), DAY, DAY + 1),  # one stamp of yesterday
        ((1, DAY, DAY + 1), 1, DAY + 1),
        # A clock that was set back has shown both times.
        ((DAY, DAY + 1, DAY + 2, 5, 6, 7), 5, DAY + 2),
    ],
)
def test_few_stamps_that_others_contradict_do_not_count(
    times: tuple[int, ...], oldest: int, newest: int
) -> None:
    assert trusted_times(log(*times), 10) == (oldest, newest)


def test_many_messages_of_one_time_are_believed() -> None:
    some = log(5, DAY, 6)
    many = [some[0], some[1]._replace(messages=50), some[2]]
    assert trusted_times(some, 10)[1] == 6
    assert trusted_times(many, 10)[1] == DAY


def test_a_body_that_is_flagged_compressed_and_is_not_is_told() -> None:
    bodies = [(b"plain", 1), (zlib.compress(b"x"), 1), (b"plain", 0), (b"", 1), (b"p", 0x301)]
    bodies += [(b"lz4, which is not looked at", 0x101)]
    data, offsets = b"", []
    for number, (body, flag) in enumerate(bodies):
        offsets.append(len(data))
        data += record(Message("t", 3, body, stored=number, sys_flag=flag), number, len(data))
    found = walk(np.frombuffer(data, np.uint8), 0)
    records = Records(data, 0, found.positions, found.shape)
    assert records.unreadable_rows() == [0, 4]
    (batch,) = Reduction("b", "uniqKey", 10).unreadable(records)
    rows = [{k: v for k, v in row.items() if v is not None} for row in batch.to_pylist()]
    assert rows == [
        {
            "kind": UNREADABLE, "brokerName": "b", "topic": "t", "queueId": 3,
            "leastOffset": number, "leastPlace": offsets[number], "leastMs": START_MS + number,
        }
        for number in (0, 4)
    ]  # fmt: skip
