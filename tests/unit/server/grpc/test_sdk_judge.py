"""The judge of `bench/sdk_kills.py` finds each promise that was broken."""

from collections import Counter

import pytest
from sdk_judge import Diary, Got, judge


def got(key: str, number: int, *, attempt: int = 1, at: float = 0.0) -> Got:
    return Got(key, (1, number), "group", attempt, at)


def well() -> dict[str, Diary]:
    """Two messages that were sent, received in order and acknowledged, in a topic of each kind."""
    diaries = {kind: Diary() for kind in ("plain", "fifo", "recall")}
    for diary in diaries.values():
        for number, key in enumerate("ab"):
            diary.sent[key] = 1.0
            diary.got.append(got(key, number))
            diary.acked.append(got(key, number))
    diaries["recall"].recalled.add("c")
    return diaries


def loses(diaries: dict[str, Diary]) -> None:
    diaries["plain"].sent["lost"] = 1.0


def comes_again(diaries: dict[str, Diary]) -> None:
    diaries["plain"].got.append(got("a", 0, attempt=2, at=20.0))
    diaries["plain"].acked.append(got("a", 0, attempt=2, at=20.0))


def overtakes(diaries: dict[str, Diary]) -> None:
    diaries["fifo"].got.reverse()


def hurries(diaries: dict[str, Diary]) -> None:
    diaries["plain"].got.append(got("b", 1, attempt=2, at=10.0))


def undoes(diaries: dict[str, Diary]) -> None:
    diaries["recall"].got.append(got("c", 2))


def test_what_went_well_is_not_blamed() -> None:
    verdict = judge("set", "py", 1, well(), Counter("ab"))
    assert not verdict.is_broken, verdict.notes


@pytest.mark.parametrize("fault", [loses, comes_again, overtakes, hurries, undoes])
def test_each_broken_promise_is_found(fault) -> None:
    diaries = well()
    fault(diaries)
    assert judge("set", "py", 1, diaries, Counter("ab")).is_broken


def test_a_message_that_was_stored_twice_may_come_twice() -> None:
    """An SDK that got no answer sends the message again."""
    diaries = well()
    comes_again(diaries)
    assert not judge("set", "py", 1, diaries, Counter("aab")).is_broken
