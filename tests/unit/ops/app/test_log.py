"""What twistd logs to standard output."""

import io
import os
import signal
import sys

import pytest
from twisted.application.service import Application
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import ILogObserver, Logger
from twisted.python import log

from rmq_ha.base.config.log_level import LogThreshold
from rmq_ha.ops.app.exposure import exposure, replication_exposure
from rmq_ha.ops.app.log import LogStyle, server_observer
from rmq_ha.ops.app.service import LogBeginning, ServerService


def test_sigusr1_ends_no_server_whose_log_is_no_file():
    """Who rotates logs sends it to all."""
    before = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    try:
        server_observer({"nodaemon": True})
        os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_only_the_plugin_cache_message_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    observer = server_observer({"nodaemon": True})
    assert observer is not None
    publisher = log.LogPublisher()
    publisher.addObserver(observer)
    publisher.msg(format="Unable to write to plugin cache %(path)s: error number 13", path="/x")
    publisher.msg(format="Unable to write to %(path)s", path="/y")
    publisher.msg("hello")
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("Unable to write to /y")
    assert lines[1].endswith("hello")


@pytest.mark.parametrize(
    "options",
    [
        None,
        {"nodaemon": False, "logfile": "-"},
        {"nodaemon": True, "syslog": True},
        {"nodaemon": True, "logger": lambda: None},
    ],
)
def test_a_log_that_was_chosen_stays(options: object) -> None:
    assert server_observer(options) is None


def test_the_application_gets_the_observer() -> None:
    observer = server_observer({"nodaemon": True, "logfile": "-"})
    application = Application("x")  # type: ignore[no-untyped-call]
    service = ServerService(MemoryReactorClock(), None, None, beginning=LogBeginning(observer))  # type: ignore[arg-type]
    service.setServiceParent(application)
    assert application.getComponent(ILogObserver) is observer


@pytest.mark.parametrize("address", ["", "0.0.0.0", "::", "10.0.0.1"])
def test_an_open_server_is_exposed(address: str) -> None:
    warning = exposure(address, {"tls.server.mode": "permissive"})
    assert warning is not None
    assert ("all addresses" in warning) == (address != "10.0.0.1")


def test_loopback_acl_and_enforced_tls_are_not_exposed() -> None:
    assert exposure("127.0.0.1", {}) is None
    assert exposure("::1", {}) is None
    assert exposure("", {"tls.server.mode": "enforcing"}) is None
    assert exposure("", {}, has_acl=True) is None


def test_a_plain_replication_port_is_exposed_unless_only_this_machine_reaches_it() -> None:
    warning = replication_exposure("", {"tls.ha.mode": "permissive"}, 10912, "")
    assert warning is not None
    assert "port 10912 on all addresses" in warning
    assert "set haAllowedSlaves" in warning
    assert replication_exposure("", {}, 10912, "*") is not None
    assert replication_exposure("", {}, 10912, "10.0.0.2") is None
    assert replication_exposure("127.0.0.1", {}, 10912, "") is None
    assert replication_exposure("10.0.0.1", {"tls.ha.mode": "enforcing"}, 10912, "") is None


def test_the_advice_names_what_there_is() -> None:
    """Brokers and name servers take the same three keys."""
    told = exposure("", {})
    assert told is not None
    assert "set bindAddress, aclEnable=true, or tls.server.mode=enforcing" in told


def test_a_text_file_keeps_so_many_rotated_ones(tmp_path) -> None:
    path = tmp_path / "broker.log"
    before = signal.getsignal(signal.SIGUSR1)
    try:
        observer = server_observer({"logfile": str(path)}, LogStyle(most_files=2))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert observer is not None
    for number in range(40):
        event = {"log_format": "{text}", "text": f"{number} " + "x" * 200_000, "log_time": 1.0}
        observer(event)
    assert sorted(os.listdir(tmp_path)) == ["broker.log", "broker.log.1", "broker.log.2"]
    assert "39 xxx" in path.read_text()


def test_what_a_peer_is_called_does_nothing_to_the_readers_terminal(monkeypatch) -> None:
    """ESC, CR, NUL and reading directions of broker and group names came through."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    observer = server_observer({"nodaemon": True})
    assert observer is not None
    name = "b\x1b[2J\x00\x9b\r\u202ex\u2028y\nforged"
    observer({"log_format": "broker {name}", "name": name, "log_time": 1.0, "log_namespace": "n"})
    text = out.getvalue()
    assert text.endswith(
        "broker b\\x1b[2J\\x00\\x9b\\x0d\\u202ex\\u2028y\n\tforged\n"  # indented: no line
    )


@pytest.mark.parametrize(
    ("least", "expected"),
    [("debug", ["low", "middle", "high"]), ("info", ["middle", "high"]), ("error", ["high"])],
)
def test_what_is_below_the_level_is_not_logged(
    monkeypatch: pytest.MonkeyPatch, least: str, expected: list[str]
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    observer = server_observer({"nodaemon": True}, LogStyle(least=LogThreshold(least)))
    assert observer is not None
    logger = Logger("x", observer=observer)
    logger.debug("low")
    logger.info("middle")
    logger.error("high")
    assert [line.split()[-1] for line in out.getvalue().splitlines()] == expected
