"""The status port over a simulated network: what an HTTP client gets, and when."""

from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

import twisted
from rmq_ha import __version__
from rmq_ha.ops.app.status.health import Health
from rmq_ha.ops.app.status.server import StatusServer
from rmq_ha.testing.host import World

PORT = 5557
LACK = "not in sync, as far as this broker knows\n"


class Reader(Protocol):
    """Collects what comes until the server closes."""

    def __init__(self) -> None:
        self.data = b""
        self.done: Deferred[bytes] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Any = None) -> None:
        self.done.callback(self.data)


class Failing:
    """A subject that cannot tell anything."""

    def constants(self) -> dict[str, str]:
        return {}

    def collect(self, samples: Any) -> None:
        raise ZeroDivisionError("oops")


class StatusServerTests(SynchronousTestCase):
    """`StatusServer`."""

    def setUp(self) -> None:
        self.world = World(1)
        self.host = self.world.add("broker")
        self.client = self.world.add("client")
        self.server = StatusServer(self.host.seams, "rmqha", PORT, "")
        self.wait(self.server.start())

    def wait(self, later: "Deferred[Any]") -> Any:
        results: list[Any] = []
        later.addBoth(results.append)
        self.world.clock.run_while(lambda: not results, 10)
        return results[0]

    def get(self, path: str, method: str = "GET") -> tuple[int, str, str]:
        """Status, content type and body."""
        endpoint = self.client.seams.network.client(self.host.ip, PORT)
        reader = self.wait(endpoint.connect(Factory.forProtocol(Reader)))
        text = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        reader.transport.write(text.encode())
        head, _, body = self.wait(reader.done).decode().partition("\r\n\r\n")
        lines = head.split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        return int(lines[0].split()[1]), headers.get("content-type", ""), body

    def test_a_scrape_names_the_build(self) -> None:
        """A fleet in the middle of an upgrade is told apart."""
        text = self.get("/metrics")[2]
        self.assertIn(
            f'server="rmqha",twisted="{twisted.__version__}",version="{__version__}"', text
        )

    def test_health_is_asked_at_each_request(self) -> None:
        """503 with the reason while it is not ready, 200 when it is."""
        self.assertEqual(self.get("/healthz")[::2], (503, "not ready: starting\n"))
        self.server.health = lambda: Health(True, "all is well")
        self.assertEqual(self.get("/healthz")[::2], (200, "ready: all is well\n"))
        self.server.withdraw(Health(False, "stopping"))
        self.assertEqual(self.get("/healthz")[::2], (503, "not ready: stopping\n"))

    def test_who_lacks_messages_is_healthy_and_not_ready(self) -> None:
        """A rolling restart waits for /readyz; nobody is killed for what /livez answers."""
        self.assertEqual(self.get("/readyz")[::2], (503, "not ready: starting\n"))
        self.server.health = lambda: Health(True, "it copies", is_in_sync=False)
        self.assertEqual(self.get("/healthz")[::2], (200, "ready: it copies\n"))
        self.assertEqual(self.get("/readyz")[::2], (503, "not ready: it copies; " + LACK))
        self.server.health = lambda: Health(True, "all is well")
        self.assertEqual(self.get("/readyz")[::2], (200, "ready: all is well\n"))
        self.server.withdraw(Health(False, "stopping"))
        self.assertEqual(self.get("/livez")[::2], (200, "alive\n"))

    def test_metrics_are_prometheus_text(self) -> None:
        """The process and the reactor are there before anything else is."""
        status, content_type, body = self.get("/metrics")
        self.assertEqual(status, 200)
        self.assertTrue(content_type.startswith("text/plain; version=0.0.4"))
        names = {family.name for family in text_string_to_metric_families(body)}
        self.assertIn("process_resident_memory_bytes", names)
        self.assertIn("rmqha_reactor_delayed_calls", names)

    def test_a_metric_that_fails_is_logged_once_and_costs_only_its_scrape(self) -> None:
        """The server that is measured goes on."""
        self.server.add(Failing())
        self.assertEqual(self.get("/metrics")[0], 500)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.get("/metrics")[0], 500)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 0)
        self.server.withdraw(Health(False, "x"))
        self.assertEqual(self.get("/metrics")[0], 200)

    def test_other_pages(self) -> None:
        """An index, 404, HEAD; nothing can be changed from here."""
        self.assertIn("/metrics", self.get("/")[2])
        self.assertEqual(self.get("/x")[0], 404)
        with capturedLogs() as lines:
            self.assertEqual(self.get("/healthz", "HEAD")[::2], (503, ""))
        shown = [formatEvent(line) for line in lines]
        self.assertEqual([line for line in shown if "HEAD" in line], [])
        self.assertEqual(self.get("/metrics", "POST")[0], 405)

    def test_reactor_lag_is_measured(self) -> None:
        """A timer that runs late is what everybody waits."""
        self.world.clock.run_while(lambda: self.world.clock.seconds() < 5, 5)
        body = self.get("/metrics")[2]
        self.assertIn('rmqha_reactor_lag_seconds_bucket{le="0.0005",server="rmqha"} 1', body)

    def test_stop_closes_the_port_and_leaves_no_timer(self) -> None:
        """Twice is harmless."""
        self.wait(self.server.stop())
        self.wait(self.server.stop())
        self.assertEqual(self.server.port, 0)
        self.assertEqual(self.host.clock.getDelayedCalls(), [])
