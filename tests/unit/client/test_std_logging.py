"""What the client says, in Python's `logging`: by name, by level, and the right sentence."""

import logging
import subprocess
import sys
import warnings
from io import StringIO
from typing import Any

import pytest
from twisted.logger import LogBeginner, Logger, LogLevel, LogPublisher, globalLogPublisher
from twisted.python.failure import Failure

from rmq_ha.base.host import std_logging
from rmq_ha.base.host.std_logging import to_logging
from rmq_ha.client.aio import Client
from rmq_ha.client.rules.consumer_settings import PushConsumerConfig
from rmq_ha.client.rules.messages import Message
from rmq_ha.testing.client_world import ClientWorld


def test_an_event_is_a_record_of_its_module(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "rmq_ha")
    event = {"log_namespace": "rmq_ha.client.send.sender.Sender", "log_format": "{n} % of {what}"}
    to_logging({**event, "log_level": LogLevel.warn, "n": 5, "what": "it"})
    to_logging({**event, "log_level": LogLevel.debug, "n": 6, "what": "it"})
    failure = Failure(ValueError("broken"))  # type: ignore[no-untyped-call]
    to_logging({**event, "log_level": LogLevel.critical, "log_failure": failure, "n": 7, "what": 1})
    assert caplog.record_tuples == [
        ("rmq_ha.client.send.sender.Sender", logging.WARNING, "5 % of it"),
        ("rmq_ha.client.send.sender.Sender", logging.DEBUG, "6 % of it"),
        ("rmq_ha.client.send.sender.Sender", logging.ERROR, "7 % of 1"),
    ]
    assert caplog.records[2].exc_info is not None
    assert isinstance(caplog.records[2].exc_info[1], ValueError)


def test_what_nobody_wants_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("rmq_ha.client.quiet")
    logger.setLevel(logging.ERROR)
    monkeypatch.setattr(logger, "log", None)
    event = {"log_namespace": logger.name, "log_format": "x", "log_level": LogLevel.info}
    to_logging(event)


PROGRAM = """
import asyncio, logging, sys, warnings
logging.basicConfig(format="%(levelname)s %(name)s %(message)s", stream=sys.stdout)
shown = warnings.showwarning
if {begun}:
    from twisted.python import log
    log.startLogging(sys.stderr, setStdout=False)
    shown = warnings.showwarning
from rmq_ha.client.aio import connect
from rmq_ha.client import Message
async def main():
    async with connect("127.0.0.1:1") as client:
        log = (await client.producer()).deferred._sender.log
        try:
            1 / 0
        except ZeroDivisionError:
            log.failure("it {{what}}", what="broke")
asyncio.run(main())
assert warnings.showwarning == shown
"""


@pytest.mark.parametrize("begun", [False, True])
def test_a_program_of_asyncio_has_it_in_its_logging(begun: bool) -> None:
    """Unless it has a log of Twisted's: then it is there, and there alone."""
    run = [sys.executable, "-c", PROGRAM.format(begun=begun)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    ours, twisteds = (done.stderr, done.stdout) if begun else (done.stdout, done.stderr)
    assert "it broke" in ours
    assert begun or ours.startswith("ERROR rmq_ha.client.send.sender.Sender it broke")
    assert twisteds == ""


@pytest.mark.parametrize("begun", [False, True])
def test_a_log_that_has_begun_is_left_alone(
    begun: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publisher, had, shown = LogPublisher(), list[Any](), warnings.showwarning
    beginner = LogBeginner(publisher, StringIO(), sys, warnings)
    monkeypatch.setattr(std_logging, "globalLogBeginner", beginner)
    caplog.set_level(logging.INFO, "rmq_ha")
    if begun:
        beginner.beginLoggingTo([had.append], redirectStandardIO=False)
        monkeypatch.setattr(warnings, "showwarning", shown)
    for _ in range(2):
        std_logging.begin_logging()
    out = sys.stdout
    Logger("rmq_ha.x", observer=publisher).info("it")
    assert [text for _, _, text in caplog.record_tuples] == ([] if begun else ["it"])
    assert len([event for event in had if event["log_namespace"] == "rmq_ha.x"]) == begun
    assert (warnings.showwarning, sys.stdout) == (shown, out)


class Said:
    """What the consumers of a world say, as `logging` has it."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._records = caplog

    def of(self, part: str) -> list[str]:
        return [text for _, _, text in self._records.record_tuples if part in text]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.WARNING, "rmq_ha")
    globalLogPublisher.addObserver(to_logging)
    yield Said(caplog)
    globalLogPublisher.removeObserver(to_logging)


async def fail(client: Client, orderly: bool, answer: Any, config: PushConsumerConfig) -> None:
    """One message, and a listener that never takes it."""
    import asyncio

    consumer = client.push_consumer("g", config)
    consumer.subscribe("T")

    def listen(messages: Any, context: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer(context)

    consumer.register_message_listener(listen, orderly=orderly)  # type: ignore[call-overload]
    await consumer.start()
    await (await client.producer()).send(Message("T", b"x"))
    await asyncio.sleep(60)


@pytest.mark.parametrize("orderly", [False, True])
def test_the_last_try_says_where_the_message_goes(said: Said, orderly: bool) -> None:
    """It said "it will come again" of a message that nobody would see again."""

    async def story(world: ClientWorld) -> None:
        async with world.connect() as client:
            config = PushConsumerConfig(max_reconsume_times=2)
            await fail(client, orderly, ValueError("no"), config)

    with ClientWorld() as world:
        world.run(story(world))
    endings = [text.split(": ", 1)[1] for text in said.of("the listener failed")]
    assert endings == [
        "it will come again (attempt 1 of 3)",
        "it will come again (attempt 2 of 3)",
        "that was attempt 3 of 3, and it goes to %DLQ%g",
    ]


def test_a_listener_that_asks_for_the_dead_letters_is_heard(said: Said) -> None:
    from rmq_ha.client.rules.listening import ConsumeConcurrentlyStatus

    def answer(context: Any) -> Any:
        context.delay_level_when_next_consume = -1
        return ConsumeConcurrentlyStatus.RECONSUME_LATER

    async def story(world: ClientWorld) -> None:
        async with world.connect() as client:
            await fail(client, False, answer, PushConsumerConfig())

    with ClientWorld() as world:
        world.run(story(world))
    (text,) = said.of("goes to")
    assert text.endswith(": it goes to %DLQ%g")
