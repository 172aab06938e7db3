"""Nobody of the set may lead: who says which broker has to be started.

Spec: controller.md, section 10.4.
"""

from __future__ import annotations

from rmq_ha.ops.app.status.broker import BrokerStatus
from tests.sim_kit.controlled import ControlledBrokers


def test_health_says_which_broker_has_to_be_started() -> None:
    """The only one in sync is dead, and the other one is there."""
    brokers = ControlledBrokers()
    first = brokers.in_sync()
    second = brokers.other(first)
    second.crash(power=False)
    brokers.in_sync(1)
    assert brokers.send(first, b"one has it") == 0
    first.crash(power=False)
    brokers.boot(second)
    brokers.run(20.0)
    told = BrokerStatus(second.broker).health()
    assert not told.is_ready
    assert "start broker 1 of this set, which has all" in told.line()
    is_ready, text = brokers.desk.services[0].state()
    assert is_ready
    assert f"nobody leads b: start broker 1 at {first.host.ip}:10911, which had all" in text
    brokers.boot(first)
    brokers.in_sync()
    assert "nobody leads" not in brokers.desk.services[0].state()[1]
    assert BrokerStatus(second.broker).health().is_ready
