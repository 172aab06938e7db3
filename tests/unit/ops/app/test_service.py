"""The service around a server, without a reactor."""

import errno
import gc
import io
import json
import sys
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rmq_ha.base.config.ports import PlannedPort
from rmq_ha.base.config.settings import ConfigNotice
from rmq_ha.base.errors import StoreLocked
from rmq_ha.ops.app.build import build_text
from rmq_ha.ops.app.notify import Notifier
from rmq_ha.ops.app.service import LogBeginning, ServerService, explain

PORTS = [PlannedPort(20010, "clients (listenPort)")]


class FakeServer:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.started: Deferred[Any] = succeed(None)
        self.stopped: Deferred[Any] = succeed(None)

    def start(self) -> Deferred[Any]:
        self.calls.append("start")
        return self.started

    def stop(self) -> Deferred[Any]:
        self.calls.append("stop")
        return self.stopped

    def reload(self) -> None:
        self.calls.append("reload")

    def ports(self) -> list[PlannedPort]:
        return PORTS

    def facts(self) -> dict[str, Any]:
        return {"listenPort": 20010}

    def observe(self, event: Any) -> None:
        pass


class FakeEnd:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def fail(self) -> None:
        self.calls.append("fail")

    def catch_sigterm(self) -> None:
        self.calls.append("sigterm")

    def catch_sighup(self, reload: Any) -> None:
        self.reload = reload


class ServiceTests(SynchronousTestCase):
    """`ServerService`."""

    def setUp(self) -> None:
        self.addCleanup(gc.unfreeze)
        self.reactor = MemoryReactorClock()
        self.server = FakeServer()
        self.end = FakeEnd()
        self.lines: list[str] = []
        globalLogPublisher.addObserver(self.note)
        self.addCleanup(globalLogPublisher.removeObserver, self.note)

    def note(self, event: Any) -> None:
        if event["log_namespace"].endswith("ServerService"):
            self.lines.append(event["log_format"].format(**event))

    def run_service(self, notices: Any = (), ready: bool = False) -> ServerService:
        service = ServerService(self.reactor, self.server, self.end, notices, ready)  # type: ignore[arg-type]
        service.startService()
        self.assertEqual(self.server.calls, [])
        self.reactor.run()
        return service

    def test_starts_when_the_reactor_runs_and_takes_sigterm(self) -> None:
        """What start does belongs into a running reactor, where a failure can stop it."""
        self.run_service([ConfigNotice("odd")])
        self.assertEqual(self.server.calls, ["start"])
        self.assertEqual(self.end.calls, ["sigterm"])
        self.assertEqual(self.lines[0], "odd")
        self.assertIn("serving: ", self.lines[1])

    def test_the_first_line_says_which_program_it_is(self) -> None:
        """Before anything that it warns of."""
        service = ServerService(
            self.reactor,
            self.server,
            self.end,  # type: ignore[arg-type]
            [ConfigNotice("odd")],
            beginning=LogBeginning(banner=f"rmqha: {build_text()}"),
        )
        service.startService()
        self.assertRegex(self.lines[0], r"^rmqha: rmq-ha \d+\.\d+\S* on Python 3\.\d+\S*, Twisted ")
        self.assertEqual(self.lines[1], "odd")

    def test_the_service_manager_hears_of_it_when_it_serves_and_when_it_stops(self) -> None:
        """Not before: what starts after it would find nobody."""
        self.server.started = Deferred()
        told: list[bytes] = []
        service = ServerService(
            self.reactor,
            self.server,
            self.end,  # type: ignore[arg-type]
            notifier=Notifier(self.reactor, told.append),
        )
        service.startService()
        self.reactor.run()
        self.assertEqual(told, [])
        self.server.started.callback(None)
        self.assertEqual(told, [b"READY=1\nSTATUS=serving on port 20010"])
        service.stopService()
        self.assertEqual(told[1:], [b"STOPPING=1"])

    def test_sighup_reads_the_certificates_again(self) -> None:
        """The server that runs goes on."""
        self.run_service()
        self.end.reload()
        self.assertEqual(self.server.calls, ["start", "reload"])

    def test_no_full_collection_looks_at_what_the_start_made(self) -> None:
        """One of a fresh broker takes 45 ms, in which nobody is served."""
        gc.unfreeze()
        self.run_service()
        assert gc.get_freeze_count() > 0

    def test_a_failed_start_is_one_line_and_a_failed_process(self) -> None:
        """After the line, the reactor stops; what had started is stopped too."""
        self.server.started = fail(StoreLocked("/s is in use by another broker"))
        service = self.run_service()
        self.assertEqual(self.lines, ["cannot start: /s is in use by another broker"])
        self.assertEqual(self.end.calls, ["sigterm"])
        self.reactor.advance(0)
        self.assertEqual(self.end.calls, ["sigterm", "fail"])
        self.successResultOf(service.stopService())
        self.assertEqual(self.server.calls, ["start", "stop"])

    def test_an_error_of_ours_keeps_its_traceback(self) -> None:
        """A programming error is not explained away."""
        self.server.started = fail(ZeroDivisionError("oops"))
        self.run_service()
        self.reactor.advance(0)
        self.assertEqual(self.end.calls, ["sigterm", "fail"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_a_stop_waits_for_a_start_under_way_and_then_for_the_stop(self) -> None:
        """Half a broker cannot be stopped in order."""
        self.server.started, self.server.stopped = Deferred(), Deferred()
        service = self.run_service()
        stopped = service.stopService()
        self.assertEqual(self.server.calls, ["start"])
        self.server.started.callback(None)
        self.assertEqual(self.server.calls, ["start", "stop"])
        self.assertNoResult(stopped)
        self.server.stopped.callback(None)
        self.successResultOf(stopped)

    def test_a_stop_that_fails_is_logged_and_ends(self) -> None:
        """The process goes down all the same."""
        self.server.stopped = fail(ZeroDivisionError("oops"))
        service = self.run_service()
        self.successResultOf(service.stopService())
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_a_stop_before_the_reactor_ran_has_nothing_to_do(self) -> None:
        """twistd may be told to stop at once."""
        service = ServerService(self.reactor, self.server, self.end)  # type: ignore[arg-type]
        service.startService()
        self.assertIsNone(service.stopService())
        self.assertEqual(self.server.calls, [])

    def test_the_ready_line_is_json_on_the_real_stdout(self) -> None:
        """Tests and supervisors wait for it; the log's own prefix must not be before it."""
        pipe = io.BytesIO()
        self.patch(sys, "__stdout__", io.TextIOWrapper(pipe))
        self.run_service(ready=True)
        word, _, facts = pipe.getvalue().decode().partition(" ")  # not what a buffer keeps
        self.assertEqual(word, "READY")
        self.assertEqual(json.loads(facts)["listenPort"], 20010)
        self.assertIn("pid", json.loads(facts))

    def test_who_did_not_ask_for_the_ready_line_gets_none(self) -> None:
        """A program that embeds us prints lines of its own."""
        out = io.StringIO()
        self.patch(sys, "__stdout__", out)
        self.run_service()
        self.assertEqual(out.getvalue(), "")

    def test_a_daemon_that_has_closed_its_stdout_starts_all_the_same(self) -> None:
        """There is nowhere to print the READY line."""
        self.patch(sys, "__stdout__", None)
        service = self.run_service(ready=True)
        assert service._started is not None
        self.successResultOf(service._started)


class ExplainTests(SynchronousTestCase):
    """`explain`."""

    def test_a_port_in_use_says_which_and_what_for(self) -> None:
        """The plan knows what each port is for."""
        error = CannotListenError("127.0.0.1", 20010, OSError(errno.EADDRINUSE, "in use"))
        self.assertEqual(
            explain(error, PORTS),
            "cannot listen on port 20010 of 127.0.0.1 for clients (listenPort): "
            "it is in use by another process; end that one ('ss -ltnp' names it), or set another"
            " port",
        )

    def test_another_reason_is_the_systems(self) -> None:
        """A port below 1024, an address that is not ours."""
        error = CannotListenError("", 99, OSError(errno.EACCES, "Permission denied"))
        self.assertEqual(
            explain(error, PORTS),
            "cannot listen on port 99 of any address: Permission denied; below 1024 ports are for"
            " root, or CAP_NET_BIND_SERVICE: set a higher one",
        )

    def test_a_file_error_names_the_file(self) -> None:
        """The operator needs the path."""
        error = PermissionError(errno.EACCES, "Permission denied", "/s/lock")
        text = explain(error, PORTS) or ""
        self.assertTrue(text.startswith("/s/lock: Permission denied; give the user"), text)
        self.assertIn("storePathRootDir", text)

    def test_a_mistake_of_ours_has_no_explanation(self) -> None:
        """It gets its traceback."""
        self.assertIsNone(explain(KeyError("x"), PORTS))
