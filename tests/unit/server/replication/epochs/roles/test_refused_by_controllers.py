"""A broker that its controllers refuse says so, and what to do.

Spec: controller.md, section 3.1.
"""

from __future__ import annotations

from rmq_ha.ops.app.status.broker import BrokerStatus
from tests.sim_kit.controlled import ControlledBrokers, ControllerDesk


def test_a_broker_that_is_not_listed_gets_no_role_and_health_says_why() -> None:
    desk = ControllerDesk(controller_allowed_brokers="10.0.0.4")
    brokers = ControlledBrokers(1, desk=desk)
    assert brokers.nodes[0].host.ip == "10.0.0.4"
    brokers.add(brokers.world.add("b1"), lambda _: None)
    second = brokers.nodes[1]
    brokers.run(5.0)
    assert desk.info()[1].members == (1,)
    told = BrokerStatus(second.broker).health()
    assert not told.is_ready
    assert (
        f"{second.host.ip} is not in controllerAllowedBrokers=10.0.0.4: add it there" in told.line()
    )
