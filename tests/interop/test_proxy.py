"""Java's proxy 5.3.3 in front of a name server and a broker of ours: docs/clients-5x.md."""

from __future__ import annotations

import pytest

from rmq_ha.base.wire.codes import RequestCode
from tests.interop.proxies import Proxies, drive, missing
from tests.interop.rig import Rig
from tests.interop.wire import Wire

_REASON = missing()
pytestmark = pytest.mark.skipif(_REASON is not None, reason=_REASON or "")
COUNT = 6


def test_a_simple_consumer_gets_each_message_and_gets_a_changed_one_again(rig: Rig) -> None:
    """The proxy starts beside a broker that has nothing, and makes the topics that it needs."""
    namesrv = rig.namesrv()
    broker = rig.broker(
        "master-sync.conf", "m", namesrv=namesrv, brokerRole="ASYNC_MASTER", popEnable="true"
    )
    with Wire(broker.address) as wire:
        wire.create_topic("Simple", 4)
    proxy = Proxies(rig, namesrv, "Simple", "PeerCluster").start("proxy")
    to = ["--endpoints", proxy.address, "--topic", "Simple", "--count", COUNT]
    (*_, sent) = drive("py", "produce", *to)
    assert sent["sent"] == COUNT
    (*got, told) = drive("py", "simple", *to, "--change", 1, "--verbose", "--group", "G")
    # The proxy answers 50001 to a receive that comes before the consumer's settings, once.
    assert told["errors"] <= 1
    assert (told["distinct"], told["acked"], told["changed"]) == (COUNT, COUNT, COUNT)
    attempts = sorted((int(each["i"]), each["attempt"]) for each in got if each["event"] == "got")
    assert attempts == [(number, attempt) for number in range(COUNT) for attempt in (1, 2)]
    with Wire(broker.address) as wire:
        offsets = wire.table(RequestCode.GET_ALL_CONSUMER_OFFSET)["offsetTable"]
    assert sum(offsets["Simple@G"].values()) == COUNT  # what is acknowledged is consumed
