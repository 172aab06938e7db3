"""What a message may take in the client, in calls: exact, whatever else the machine does.

Beside each limit stands what a message took at commit 7fe1764, counted in the same way: the client
does more since then, and shall cost less. Whoever makes a path cheaper lowers its limit.
`python bench/clientpath.py --path reactor --profile` says where the calls go.
"""

import clientpath
import pytest
from clientpath import Counts

LIMITS: dict[tuple[str, int], tuple[Counts, Counts]] = {  # path and sends in flight: limit, 7fe1764
    ("reactor", 1): (Counts(57.0, 55.0), Counts(64.0, 62.0)),
    ("reactor", 64): (Counts(50.1, 48.9), Counts(57.1, 58.6)),
    ("asyncio", 1): (Counts(80.1, 69.1), Counts(98.1, 80.1)),
    ("asyncio", 64): (Counts(62.4, 57.3), Counts(79.4, 71.3)),
    ("blocking", 1): (Counts(121.0, 204.0), Counts(167.0, 331.0)),
    ("consume", 1): (Counts(27.1, 33.4), Counts(30.0, 39.4)),
    ("pull", 1): (Counts(16.2, 21.6), Counts(18.2, 25.5)),
}
LEAST_BETTER = 0.09


@pytest.mark.parametrize(("path", "in_flight"), LIMITS)
def test_a_message_takes_no_more_calls_than_its_budget(path: str, in_flight: int) -> None:
    limit, _ = LIMITS[path, in_flight]
    found, _ = clientpath.calls(path, in_flight, 256)
    assert found.python <= limit.python + 0.05, found
    assert found.c <= limit.c + 0.05, found


@pytest.mark.parametrize(("path", "in_flight"), LIMITS)
def test_every_budget_is_well_below_what_a_message_once_took(path: str, in_flight: int) -> None:
    """Who raises a limit has to see how far he goes."""
    limit, before = LIMITS[path, in_flight]
    assert limit.python <= before.python * (1 - LEAST_BETTER)
    assert limit.c <= before.c * (1 - LEAST_BETTER)


def test_a_budget_counts_the_same_in_each_run() -> None:
    assert clientpath.calls("asyncio", 16, 160)[0] == clientpath.calls("asyncio", 16, 160)[0]
