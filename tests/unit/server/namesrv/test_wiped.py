"""Brokers that producers are to avoid until an operator says otherwise."""

from random import Random

from twisted.internet.defer import Deferred

from rmq_ha.server.namesrv.kv_config import WIPED_WRITE_PERM, KVConfigManager
from rmq_ha.server.namesrv.wiped_brokers import WipedBrokers
from rmq_ha.testing.disk import SimDisk


class Late:
    """A worker that does nothing until it is told to."""

    def __init__(self) -> None:
        self.jobs: list[Deferred[None]] = []

    def call(self, function: object, *args: object) -> "Deferred[None]":
        self.jobs.append(Deferred())
        return self.jobs[-1]


def test_a_broker_stays_wiped_until_it_is_opened_and_what_is_open_writes_nothing() -> None:
    worker = Late()
    kv_config = KVConfigManager(SimDisk(Random(1), lambda: 0), worker, "/kv.json")  # type: ignore[arg-type]
    lasts = [True]
    wiped = WipedBrokers(kv_config, lambda: lasts[0])
    assert not wiped.is_wiped("a")
    done: list[bool] = []
    wiped.remove("a").addCallback(done.append)
    assert (done, worker.jobs) == ([True], [])
    wiped.add("a").addCallback(done.append)
    assert wiped.is_wiped("a")
    assert (done, len(worker.jobs)) == ([True], 1)
    assert kv_config.get(WIPED_WRITE_PERM, "a") == "true"
    lasts[0] = False
    assert not wiped.is_wiped("a")
    wiped.add("b").addCallback(done.append)
    assert (done, kv_config.get(WIPED_WRITE_PERM, "b")) == ([True, True], None)
    wiped.remove("a").addCallback(done.append)
    assert kv_config.get(WIPED_WRITE_PERM, "a") is None
    assert len(done) == 2  # the file does not say so yet
