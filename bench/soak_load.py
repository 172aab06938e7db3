"""The load of `bench/soak.py`: producers and consumers of rmq-ha's own client.

    python bench/soak_load.py produce NAMESRV RATE
    python bench/soak_load.py consume NAMESRV CHURN_SECONDS

Prints tab-separated lines, which `soak_history.py` judges:
    A id                                  an attempt to send it begins, one of several perhaps
    S id STATUS queue place               the answer: queue id, place in the log; or ERROR
    R stream id reconsume queue offset    a message was consumed
    E what                                ready, stopped, or a member that came or went
An id is STREAM-SERIAL-FATE. On stdin: `stop` ends the sends and the churn, `quit` everything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.stdio import StandardIO
from twisted.internet.task import LoopingCall, deferLater
from twisted.protocols.basic import LineOnlyReceiver

from rmq_ha.client.connecting import connect
from rmq_ha.client.consume.push_consumer import PushConsumer
from rmq_ha.client.rules.consumer_settings import ConsumeFromWhere, PushConsumerConfig
from rmq_ha.client.rules.errors import MQClientError
from rmq_ha.client.rules.messages import Message, MessageExt, SendStatus
from rmq_ha.client.rules.settings import ClientConfig, ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.client.send.transactions import LocalTransactionState, TransactionProducer

reactor: Any = _reactor
ATTEMPTS = 40
ONCE = {"retry_times_when_send_failed": 0, "delivery_timeout_ms": 0}
"""Its own loop notes what became of each attempt."""
AGAIN_S = 0.5
DELAY_LEVEL = 2
MEMBERS = 2
FATES = ("commit",) * 4 + ("rollback",) * 2 + ("check",) * 2 + ("late",) * 2
"""Of transactions: told at once, taken back, asked about, told after the broker has asked."""
LATE_S = (2.5, 4.0, 6.0)
CLIENT: dict[str, Any] = {
    "client_ip": "127.0.0.1",
    "poll_name_server_interval_ms": 2000,
    "heartbeat_broker_interval_ms": 2000,
}


_lines: list[StandardIO] = []


def say(*words: object) -> None:
    """A line; the reactor keeps it while the reader is behind: descriptor 1 does not block."""
    _lines[0].write("\t".join(map(str, words)).encode() + b"\n")


class Orders(LineOnlyReceiver):
    """What the soak wants."""

    delimiter = b"\n"

    def __init__(self, work: Any) -> None:
        self._work = work

    def lineReceived(self, line: bytes) -> None:
        order = self._work.stop if line.strip() == b"stop" else self._work.quit
        Deferred.fromCoroutine(order()).addErrback(lambda failure: say("E", f"failed {failure}"))

    def connectionLost(self, reason: Any = None) -> None:
        if reactor.running:
            reactor.stop()


def fate_of(serial: int) -> str:
    return FATES[serial % len(FATES)]


class Work:
    """The sender's own work: what becomes of a transaction stands in its id."""

    def execute_local_transaction(self, message: Message, arg: Any) -> Any:
        fate = message.body.decode().rpartition("-")[2]
        if fate == "rollback":
            return LocalTransactionState.ROLLBACK_MESSAGE
        if fate == "check":
            return LocalTransactionState.UNKNOW
        if fate == "late":
            seconds = LATE_S[int(message.body.split(b"-")[1]) % len(LATE_S)]
            commit = LocalTransactionState.COMMIT_MESSAGE
            return deferLater(reactor, seconds, lambda: commit)
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        if message.body.endswith(b"rollback"):
            return LocalTransactionState.ROLLBACK_MESSAGE
        return LocalTransactionState.COMMIT_MESSAGE


class Transactions(TransactionProducer):
    """Tells of a half message when it is stored, not when its transaction is over."""

    def send(self, message: Message, **options: Any) -> Any:
        sent, id_ = super().send(message, **options), message.body.decode()
        return sent.addCallbacks(_stored, _failed, [id_], None, [id_])


def _stored(result: Any, id_: str) -> Any:
    place = int(result.offset_msg_id[-16:] or "0", 16)
    say("S", id_, result.send_status.name, result.message_queue.queue_id, place)
    return result


def _failed(failure: Any, id_: str) -> Any:
    failure.trap(MQClientError)
    say("S", id_, "ERROR", -1, type(failure.value).__name__)
    return failure


class Producers:
    """Three streams at a steady rate; what is not SEND_OK is sent again, but for transactions."""

    def __init__(self, namesrv: str, rate: float) -> None:
        self._instance = connect(reactor, ClientConfig(namesrv_addr=namesrv, **CLIENT))
        settings = ProducerConfig(producer_group="soak-p", **ONCE)
        self._plain = Producer(self._instance, settings)
        settings = ProducerConfig(producer_group="soak-t", **ONCE)
        self._transactions = Transactions(self._instance, Work(), settings)
        self._tick = LoopingCall(self._send)
        self._rate = rate
        self._serial = 0
        self._running = 0

    async def start(self) -> None:
        await self._plain.start()
        await self._transactions.start()
        self._tick.start(1 / self._rate, now=False)
        say("E", "ready")

    def _send(self) -> None:
        self._serial += 1
        serial = self._serial
        fate = fate_of(serial)
        for each in (
            self._message(f"normal-{serial}-x", "own-normal", 0),
            self._message(f"delayed-{serial}-x", "own-delayed", DELAY_LEVEL),
            self._transaction(f"txn-{serial}-{fate}"),
        ):
            self._running += 1
            Deferred.fromCoroutine(each).addErrback(self._failed).addBoth(self._over)

    def _failed(self, failure: Any) -> None:
        say("E", f"load failed {failure.getErrorMessage()!r}")

    def _over(self, _: object) -> None:
        self._running -= 1

    async def _message(self, id_: str, topic: str, level: int) -> None:
        for _ in range(ATTEMPTS):
            say("A", id_)
            message = Message(topic, id_.encode(), keys=id_, delay_time_level=level)
            if await self._attempt(id_, self._plain.send(message)):
                return
            await deferLater(reactor, AGAIN_S)

    async def _transaction(self, id_: str) -> None:
        say("A", id_)
        message = Message("own-txn", id_.encode(), keys=id_)
        with suppress(MQClientError):
            await self._transactions.send_in_transaction(message, None)

    async def _attempt(self, id_: str, sent: Any) -> bool:
        try:
            result = await sent.addCallbacks(_stored, _failed, [id_], None, [id_])
        except MQClientError:
            return False
        return bool(result.send_status is SendStatus.SEND_OK)

    async def stop(self) -> None:
        self._tick.stop()
        for _ in range(600):
            if not self._running:
                break
            await deferLater(reactor, 0.1)
        say("E", "stopped")

    async def quit(self) -> None:
        await self._transactions.stop()
        await self._plain.stop()
        reactor.stop()


class Consumers:
    """A group for each stream; one member more comes and goes."""

    def __init__(self, namesrv: str, churn_s: float) -> None:
        self._namesrv, self._churn_s = namesrv, churn_s
        self._members: list[PushConsumer] = []
        self._guest: PushConsumer | None = None
        self._churn = LoopingCall(lambda: Deferred.fromCoroutine(self._come_or_go()))

    async def start(self) -> None:
        for _ in range(MEMBERS):
            self._members += [await self._join(stream) for stream in STREAMS]
        self._churn.start(self._churn_s, now=False)
        say("E", "ready")

    async def _join(self, stream: str) -> PushConsumer:
        config = PushConsumerConfig(
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            rebalance_interval_ms=2000,
        )
        instance = connect(reactor, ClientConfig(namesrv_addr=self._namesrv, **CLIENT))
        consumer = PushConsumer(instance, f"own-g-{stream}", config)
        consumer.subscribe(f"own-{stream}", "*")

        def listen(messages: Sequence[MessageExt], context: Any) -> None:
            for message in messages:
                id_ = message.body.decode()
                say(
                    "R", stream, id_, message.reconsume_times, message.queue_id,
                    message.queue_offset,
                )  # fmt: skip

        consumer.register_message_listener(listen)
        await consumer.start()
        return consumer

    async def _come_or_go(self) -> None:
        if self._guest is None:
            self._guest = await self._join("normal")
            say("E", "join normal")
        else:
            guest, self._guest = self._guest, None
            await guest.stop()
            say("E", "leave normal")

    async def stop(self) -> None:
        if self._churn.running:
            self._churn.stop()
        say("E", "stopped")

    async def quit(self) -> None:
        for member in [*self._members, *([self._guest] if self._guest else [])]:
            await member.stop()
        reactor.stop()


STREAMS = ("normal", "delayed", "txn")


def main() -> None:
    kind, namesrv, number = sys.argv[1:4]
    work: Any = (Producers if kind == "produce" else Consumers)(namesrv, float(number))
    _lines.append(StandardIO(Orders(work)))

    def begin() -> None:
        started = Deferred.fromCoroutine(work.start())
        started.addErrback(lambda failure: (print(failure, file=sys.stderr), os._exit(1)))

    reactor.callWhenRunning(begin)
    reactor.run()


if __name__ == "__main__":
    main()
