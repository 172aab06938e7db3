"""Open transactions: whom the broker asks, how often, and what it does with the answers."""

from collections import Counter

import pytest
from transaction_kit import COMMIT, INTERVAL_S, ROLLBACK, UNKNOWN, started

from rmq_ha.model.topics import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC


def test_ended_transactions_are_not_asked_about() -> None:
    """Progress goes behind them, and their op messages are used up."""
    broker = started()
    broker.end(broker.half("a"), COMMIT)
    broker.end(broker.half("b"), ROLLBACK)
    broker.rounds(5)
    assert broker.asked == []
    assert broker.visible() == ["a"]
    assert broker.progress() == broker.ends() == (2, 2)


@pytest.mark.parametrize(("answer", "seen"), [(COMMIT, ["a"]), (ROLLBACK, [])])
def test_open_transaction_is_asked_about_once(answer: int, seen: list[str]) -> None:
    """When it is older than the time-out; the answer ends the copy that the question names."""
    broker = started()
    broker.decide = lambda key: answer
    broker.half("a")
    broker.run(2.5)
    assert broker.asked == []
    broker.rounds(6)
    assert broker.asked == [("a", 1)]
    assert broker.visible() == seen
    assert broker.progress() == broker.ends()
    assert broker.discarded() == []
