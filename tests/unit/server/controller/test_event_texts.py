"""The log says in words what the controllers have agreed on."""

import pytest

from rmq_ha.server.controller.events import (
    AddressUpdated,
    BrokerDataCleaned,
    BrokerIdApplied,
    Event,
    MasterElected,
    SyncStateSetAltered,
    event_text,
)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (SyncStateSetAltered("a", (1, 2)), "in sync of a are now the brokers 1, 2"),
        (
            BrokerIdApplied("c", "a", 3, "10.0.0.3:10911", "x"),
            "10.0.0.3:10911 is now broker 3 of a",
        ),
        (AddressUpdated("a", 3, "10.0.0.4:10911"), "broker 3 of a is now at 10.0.0.4:10911"),
        (MasterElected("a", 2, 7), "broker 2 leads a in epoch 7"),
        (MasterElected("a", None, 8), "nobody leads a in epoch 8"),
        (BrokerDataCleaned("a", (1, 3)), "the brokers 1, 3 of a are forgotten"),
        (BrokerDataCleaned("a"), "all brokers of a are forgotten"),
    ],
)
def test_an_event_is_told_in_words(event: Event, text: str) -> None:
    assert event_text(event) == text
