"""The judge of histories: each promise is broken once here, and what is allowed passes."""

import pytest

from tests.sim_kit.promises import (
    COPIES,
    LOST,
    ORDER,
    REFUSED_AND_STORED,
    TAKEN_BACK,
    CommittedOffsets,
    Promises,
    numbering_fault,
)


def history() -> Promises:
    """Messages a and b, acknowledged in turn; b was sent twice. c was refused, d rolled back."""
    promises = Promises()
    promises.sent("a", 1.0)
    promises.acknowledged("a", 2.0, 100)
    promises.sent("b", 3.0)
    promises.sent("b", 4.0)
    promises.acknowledged("b", 5.0, 200)
    promises.sent("c", 6.0)
    promises.refused("c")
    promises.sent("d", 7.0)
    promises.acknowledged("d", 8.0, 300)
    promises.taken_back("d")
    return promises


@pytest.mark.parametrize("present", [["a", "b"], ["a", "b", "b"], ["b", "a"]])
def test_promises_that_are_kept(present: list[str]) -> None:
    assert history().breaches(present, "x") == []


@pytest.mark.parametrize(
    ("present", "kind", "ids"),
    [
        (["b"], LOST, ("a",)),
        ([], LOST, ("a", "b")),
        (["a", "b", "c"], REFUSED_AND_STORED, ("c",)),
        (["a", "b", "d"], TAKEN_BACK, ("d",)),
        (["a", "a", "b"], COPIES, ("a",)),
        (["a", "b", "b", "b"], COPIES, ("b",)),
        (["a", "b", "nobody sent it"], COPIES, ("nobody sent it",)),
    ],
)
def test_a_promise_that_is_broken(present: list[str], kind: str, ids: tuple[str, ...]) -> None:
    (breach,) = history().breaches(present, "x")
    assert (breach.kind, breach.ids) == (kind, ids)


def test_what_one_place_owes_and_how_often_is_an_argument() -> None:
    promises = history()
    assert promises.breaches(["a"] * 5, "x", owed=["a"], most=lambda _: 5) == []
    (lost,) = promises.breaches([], "x", owed=["b"])
    assert lost.ids == ("b",)
    (many,) = promises.breaches(["a", "b", "b"], "x", most=lambda _: 1)
    assert many.text == "x: 1 there more often than sent: b"


def test_a_loss_that_is_allowed_is_no_breach() -> None:
    promises = history()
    promises.excuse(["a"], "the machine that had it lost power")
    assert promises.owed() == {"b"}
    assert promises.breaches(["b"], "x") == []
    assert promises.excused == {"a": "the machine that had it lost power"}


def test_a_message_behind_one_that_was_sent_after_its_answer() -> None:
    promises = history()
    assert promises.order_breaches(["a", "b"], "x") == []
    (breach,) = promises.order_breaches(["b", "a"], "x")
    assert (breach.kind, breach.ids) == (ORDER, ("a",))
    promises.sent("e", 4.5)  # sent before the answer about b: either may stand first
    assert promises.order_breaches(["a", "e", "b"], "x") == []


def test_long_ids_and_many_are_shortened() -> None:
    promises = Promises()
    for number in range(9):
        promises.sent(f"{number}" + "." * 5000)
        promises.acknowledged(f"{number}" + "." * 5000)
    (breach,) = promises.breaches([], "x")
    assert breach.text.startswith("x: 9 acknowledged and missing: 0...")
    assert breach.text.endswith(", ...")
    assert len(breach.text) < 250


@pytest.mark.parametrize(
    ("offsets", "fault"),
    [
        ([5, 6, 7], None),
        ([5, 7], "q has 7 after 5 at place 1"),
        ([5, 5], "q has 5 after 5 at place 1"),
        ([5, 0], "q has 0 after 5 at place 1"),
    ],
)
def test_the_numbers_of_a_queue(offsets: list[int], fault: str | None) -> None:
    entries = [("q", offset, f"place {place}") for place, offset in enumerate(offsets)]
    assert numbering_fault([*entries[:1], ("another queue", 0, 0), *entries[1:]]) == fault


def test_a_queue_may_begin_again_where_its_topic_was_deleted() -> None:
    entries = [("q", 5, 0), ("q", 0, 1), ("q", 1, 2)]
    assert numbering_fault(entries, lambda queue: queue == "q") is None
    assert numbering_fault(entries, lambda queue: queue == "z") == "q has 0 after 5 at 1"


def test_groups_go_back_by_what_was_committed_just_now_and_no_more() -> None:
    offsets = CommittedOffsets(20.0)
    for second in range(60):
        offsets.look_at_master(second, "g", second * 10)
    offsets.look_at_master(95, "g", 390)  # nobody could be asked for long
    assert offsets.faults == []
    offsets.forget()
    for second in range(60):
        offsets.look_at_master(second, "g", second * 10)
    offsets.look_at_master(95, "g", 370)
    assert offsets.faults == ["g went back from 380 to 370"]


def test_what_a_group_went_back_from_is_judged_once() -> None:
    """Each look after a fail-over compared it anew, with what was older by then."""
    offsets = CommittedOffsets(20.0)
    for second in range(0, 60, 2):
        offsets.look_at_master(second, ("g", 0), second * 10)
    for second in range(80, 100, 2):  # another master, which copied the offsets at 50
        offsets.look_at_master(second, ("g", 0), 500)
    assert offsets.faults == []
    for second in range(100, 160, 2):
        offsets.look_at_master(second, ("g", 0), second * 10)
    offsets.look_at_master(162, ("g", 0), 1300)
    assert offsets.faults == ["g 0 went back from 1360 to 1300"]
    offsets.look_at_master(164, ("g", 0), 1300)
    assert len(offsets.faults) == 1


def test_a_slave_may_lack_the_last_commit_alone() -> None:
    offsets = CommittedOffsets()
    offsets.look_at_copy("g", -1)
    for second in range(3):
        offsets.commit(second, "g", 10 * second)
    offsets.look_at_copy("g", 10)
    offsets.look_at_copy("g", 10)
    assert offsets.faults == []
    offsets.commit(3, "g", 30)
    offsets.look_at_copy("g", 10)  # it did not catch up
    assert offsets.faults == ["g went back from 20 to 10"]
    offsets.forget("g")
    offsets.look_at_copy("g", 0)
    assert len(offsets.faults) == 1
