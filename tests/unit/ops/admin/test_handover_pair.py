"""`rmqha-admin handover` of a classic pair, where no simulated pair is needed."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.base.errors import RemotingTimeout
from rmq_ha.ops.admin.handover_pair import _order_to


class Silent:
    """Asks a master that does not answer."""

    async def run(self, asking: Any) -> None:
        raise RemotingTimeout("no response from 10.0.0.1:10911 within 30000 ms")


def test_a_frozen_master_may_hand_over_later() -> None:
    """The error says so, and what to do at night."""
    asker: Any = Silent()
    ordered = Deferred.fromCoroutine(_order_to(asker, "10.0.0.1:10911", "10.0.0.2:10911"))
    failure: list[Any] = []
    ordered.addErrback(failure.append)
    assert failure[0].check(RemotingTimeout)
    for words in ("within 30000 ms. 10.0.0.1:10911 may hand over all the same", "ha status",
                  "docs/failover.md", "promote"):  # fmt: skip
        assert words in str(failure[0].value)
