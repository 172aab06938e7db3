"""Puts that wait for a quorum. Spec: dledger.md, section 10.5."""

import pytest
from twisted.internet.task import Clock

from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.server.dledger.puts import WaitingPuts, status_of


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (200, PutMessageStatus.PUT_OK),
        (404, PutMessageStatus.SERVICE_NOT_AVAILABLE),
        (409, PutMessageStatus.SERVICE_NOT_AVAILABLE),
        (415, PutMessageStatus.SERVICE_NOT_AVAILABLE),
        (505, PutMessageStatus.SERVICE_NOT_AVAILABLE),
        (502, PutMessageStatus.OS_PAGECACHE_BUSY),
        (503, PutMessageStatus.OS_PAGECACHE_BUSY),
        (501, PutMessageStatus.UNKNOWN_ERROR),
        (-1, PutMessageStatus.UNKNOWN_ERROR),
        (12345, PutMessageStatus.UNKNOWN_ERROR),
    ],
)
def test_statuses(code: int, status: PutMessageStatus) -> None:
    """The table of section 10.5."""
    assert status_of(code) is status


def test_all_up_to_an_entry_are_answered_in_order() -> None:
    clock, heard = Clock(), []
    puts = WaitingPuts(clock)
    for index in (3, 5, 9):
        puts.add(index, lambda status, now, index=index: heard.append((index, status.name, now)))
    clock.advance(2.0)
    puts.complete(6, 200)
    assert heard == [(3, "PUT_OK", 2.0), (5, "PUT_OK", 2.0)]
    emptied: list[None] = []
    puts.drained().addCallback(emptied.append)
    assert emptied == []
    puts.fail()
    assert heard[-1] == (9, "SERVICE_NOT_AVAILABLE", 2.0)
    assert (len(puts), emptied) == (0, [None])
    puts.drained().addCallback(emptied.append)
    assert emptied == [None, None]
