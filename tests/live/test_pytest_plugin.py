"""pytest-rmqha: each example of docs/testing.md is run as a user runs it."""

from __future__ import annotations

import re
import socket
from importlib.metadata import entry_points
from pathlib import Path
from textwrap import dedent

import pytest

from rmq_ha.base.host.ports import free_ports
from rmq_ha.testing import real_brokers

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"(?:^ {4,}# (\w+\.py)\n(?:(?: {4}.*)?\n)+)", re.MULTILINE)
INSTALLED = entry_points(group="pytest11", name="rmqha")
PLUGIN = [] if INSTALLED else ["-p", "rmq_ha.testing.pytest_plugin"]


def examples() -> dict[str, str]:
    text = (ROOT / "docs" / "testing.md").read_text() + "\n"
    return {found[1]: dedent(found[0]) for found in EXAMPLE.finditer(text)}


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly", *PLUGIN)
    return pytester.runpytest_subprocess(*options, *arguments, timeout=250)


@pytest.mark.trials
@pytest.mark.parametrize("modes", [("-p", "no:asyncio"), ("-o", "asyncio_mode=auto")])
def test_the_examples_of_the_document(pytester: pytest.Pytester, modes: tuple[str, ...]) -> None:
    """With pytest-asyncio (if it is there), and without."""
    found = examples()
    assert len(found) == 8
    del found["test_sdk.py"]  # `test_grpc_sdk` runs it where the official SDK is installed
    if modes[0] == "-o":
        pytest.importorskip("pytest_asyncio", reason="pip install 'rmq-ha[test]'")
        del found["test_real.py"]
    for name, text in found.items():
        (pytester.path / name).write_text(text)
    tests = sum(text.count("def test_") for text in found.values()) + 19
    run(pytester, *modes).assert_outcomes(passed=tests)


@pytest.mark.trials
@pytest.mark.parametrize("reactor", ["default", "asyncio"])
def test_beside_pytest_twisted(pytester: pytest.Pytester, reactor: str) -> None:
    """Whose reactor runs while tests do: at a real broker, and around worlds of their own."""
    pytest.importorskip("pytest_twisted", reason="pip install 'rmq-ha[test]'")
    pytester.makepyfile(
        """
        import asyncio
        import pytest_twisted
        from twisted.internet import reactor
        from rmq_ha.client import Message, Producer, connect

        @pytest_twisted.ensureDeferred
        async def test_a_real_broker(rmqha_broker):
            producer = Producer(connect(reactor, rmqha_broker.namesrv_addr))
            await producer.start()
            topic = rmqha_broker.new_topic()
            await producer.send(Message(topic, b"4711"))
            await producer.stop()
            assert [message.body for message in rmqha_broker.messages(topic)] == [b"4711"]

        async def test_a_world(rmqha_world):
            async with rmqha_world.connect() as client:
                producer = await client.producer()
                await producer.send(Message("Orders", b"4711"))
                await asyncio.sleep(3600)
            assert len(rmqha_world.messages("Orders")) == 1

        def test_deferreds_of_a_world(rmqha_world):
            producer = Producer(rmqha_world.client())
            rmqha_world.wait(producer.start())
            rmqha_world.wait(producer.send(Message("Orders", b"4711")))
        """
    )
    run(pytester, "-p", "no:asyncio", f"--reactor={reactor}").assert_outcomes(passed=3)


def test_a_suite_that_uses_none_of_it_pays_for_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_imported():
            loaded = {name for name in sys.modules if name.split(".")[0] == "rmq_ha"}
            assert loaded == {"rmq_ha", "rmq_ha.testing", "rmq_ha.testing.pytest_plugin"}
        """
    )
    run(pytester).assert_outcomes(passed=1)


@pytest.mark.trials
def test_a_test_that_fails_in_the_world_fails_outside(pytester: pytest.Pytester) -> None:
    """Also a timer that raises, one that waits for ever, and one that runs on another loop."""
    pytester.makepyfile(
        """
        import asyncio
        import pytest

        async def test_fails(rmqha_world):
            assert False

        def test_waits(rmqha_world):
            rmqha_world.run(asyncio.sleep(61), limit=60)

        def test_elsewhere(rmqha_world):
            async def story():
                rmqha_world.connect()
            asyncio.run(story())

        def test_error_of_a_timer(rmqha_world):
            rmqha_world.world.hosts["broker-1"].clock.callLater(1, int, "x")
            rmqha_world.wind(2)
        """
    )
    outcome = run(pytester, "-p", "no:asyncio")
    outcome.assert_outcomes(failed=3, passed=1, errors=1)
    outcome.stdout.fnmatch_lines(["*TimeoutError*", "*use `world.run(...)`*"])


@pytest.mark.trials
def test_a_port_that_somebody_takes_meanwhile_is_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others look for free ports at the same time."""
    taken = free_ports(real_brokers.PORTS)
    looks = iter([taken])
    monkeypatch.setattr(
        real_brokers, "free_ports", lambda count: next(looks, None) or free_ports(count)
    )
    with socket.socket() as other:
        other.bind(("127.0.0.1", taken + 2))
        other.listen()
        with real_brokers.RealBroker(tmp_path) as broker:
            assert broker.messages(broker.new_topic()) == []
