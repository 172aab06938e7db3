"""The host of a real process."""

import threading
import time

from twisted.internet.epollreactor import EPollReactor

from rmq_ha.host.clock import make_steady
from rmq_ha.host.real import make_host, now_ms, physical_memory
from rmq_ha.seams import Host


def test_make_host():
    """All six seams, and a worker whose threads end with the reactor."""
    reactor = EPollReactor()
    assert make_host(reactor).clock is not reactor
    make_steady(reactor)
    host = make_host(reactor)
    assert isinstance(host, Host)
    assert host.clock is reactor
    assert abs(host.now_ms() - time.time() * 1000) < 5000
    assert host.disk.is_dir("/")
    results = []

    def work():
        return threading.current_thread().name

    def begin():
        host.worker.call(work).addBoth(results.append).addBoth(lambda _: reactor.stop())

    reactor.callLater(0, begin)
    before = threading.active_count()
    reactor.run(installSignalHandlers=False)
    assert "rmq-ha-worker" in results[0]
    assert threading.active_count() <= before


def test_the_machine():
    """The time, and a sensible amount of memory."""
    assert now_ms() > 1_600_000_000_000
    assert physical_memory() > 1 << 28
