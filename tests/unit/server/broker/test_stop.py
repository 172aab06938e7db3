"""A broker that was stopped has nothing left that runs."""

from typing import Any

import pytest
from twisted.internet.defer import maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.client.lookup.requests import pull_request
from rmq_ha.testing.brokers import NamesrvNode
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.unit.server.broker.sim_broker import FAST_PORT, TOPIC, SimBroker


@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE])
def test_no_timer_is_left(role: BrokerRole) -> None:
    """The process that it lives in goes on, perhaps with a new one."""
    broker = SimBroker()
    broker.configuration.store.broker_role = role
    broker.start()
    broker.call(broker.message())
    broker.stop()
    assert broker.host.seams.clock.getDelayedCalls() == []


@pytest.mark.parametrize("name", ["topics", "groups", "consumer_offsets", "consumer_filters"])
def test_what_a_table_has_not_written_yet_is_written_at_the_stop(name: str) -> None:
    """Offsets of the last seconds, and what a disk refused when it was changed."""
    broker = SimBroker().start()
    table = getattr(broker.broker, name)
    table.persist_if_dirty()
    broker.world.clock.run_for(1)
    broker.host.disk.remove(table.path)
    table.is_dirty = True
    broker.stop()
    assert broker.host.disk.read_bytes(table.path) == table.encode()


def test_what_cannot_be_stopped_keeps_nothing_else_from_it(logged: list[Any]) -> None:
    """The store is closed, and offsets are written, whoever fails before them."""
    broker = SimBroker().start()

    def fails() -> None:
        raise RuntimeError("it cannot be stopped")

    broker.broker._undo.append(("a part of somebody else", fails))
    broker.broker.consumer_offsets.commit("g", TOPIC, 0, 7)
    broker.stop()
    (failure,) = [event["log_failure"] for event in logged if "log_failure" in event]
    assert failure.check(RuntimeError)
    table = broker.broker.consumer_offsets
    assert broker.host.disk.read_bytes(table.path) == table.encode()
    assert broker.host.seams.clock.getDelayedCalls() == []


@pytest.mark.parametrize("port", [LISTEN_PORT, FAST_PORT])
def test_a_port_that_is_taken_stops_the_start(port: int) -> None:
    """With the reason; and the store is free for whoever repairs it."""
    broker = SimBroker()
    network = broker.host.seams.network
    taken = broker.wait(network.server(port, broker.host.ip).listen(Factory()))
    with pytest.raises(CannotListenError):
        broker.start()
    broker.wait(maybeDeferred(taken.stopListening))
    broker.start()
    broker.stop()


def test_who_waits_for_a_message_is_answered_before_the_ports_close() -> None:
    """A consumer that is only cut off takes its broker for dead, and asks a slave."""
    broker = SimBroker().start()
    broker.send()
    waiting = broker.ask(pull_request("consumers", TOPIC, 0, 1, hold_ms=9000))
    broker.world.clock.run_for(1)
    assert not waiting.called
    broker.stop()
    assert broker.wait(waiting).code == ResponseCode.PULL_NOT_FOUND


def test_name_servers_hear_of_the_stop_while_the_broker_still_serves() -> None:
    """Else clients are sent to a broker that is gone until they notice it themselves."""
    broker = SimBroker()
    names = NamesrvNode(broker.world.add("names"))
    names.start()
    broker.configuration.broker.namesrv_addr = names.address
    broker.start()
    routes, served = names.namesrv.routes, []
    assert broker.broker.identity.address in str(routes.registrations())

    def unregister(*args: Any, really: Any = routes.unregister) -> Any:
        served.append(broker.broker.store.is_open)
        return really(*args)

    routes.unregister = unregister
    broker.stop()
    assert served == [True]
    assert routes.registrations() == {}
    assert broker.host.seams.clock.getDelayedCalls() == []
