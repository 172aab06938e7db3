"""
A client of transactions that decides late, decides twice, and also answers the broker's checks.
"""

from collections.abc import Callable, Iterable
from random import Random
from zlib import crc32

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.errors import RemotingError
from rmq_ha.base.model.flags import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.testing.cluster import LISTEN_PORT, StoreNode
from rmq_ha.testing.host import SimHost
from rmq_ha.testing.images import LogRecord
from tests.sim_kit.promises import Breach, Promises

GROUP = "sim-transactions"
TOPIC = "Paid"
TIME_OUT_MS = 2000
"""The broker's settings `transactionTimeOut` and `transactionCheckInterval`, in ms."""
_HEARTBEAT_SECONDS = 2.0
_SEND_TIMEOUT_MS = 5000
_LATE = (0.05, 0.5, 2.5, 4.0, 6.0)


class TransactionClient:
    """
    Sends half messages and ends them later; some of them only when the broker asks.

    :param target: returns the present master.
    :param pause: seconds between half messages, on average.
    :ivar ended: unique ids whose END was answered with success.
    """

    def __init__(
        self, host: SimHost, random: Random, target: Callable[[], StoreNode], pause: float
    ) -> None:
        self.ended: set[str] = set()
        self._host = host
        self._random = random
        self._target = target
        self._pause = pause
        self._count = 0
        self._running = False
        self._client = RemotingClient(host.seams, NettyClientConfig())
        self._client.routes[RequestCode.CHECK_TRANSACTION_STATE] = self._asked

    def start(self) -> None:
        """Begin to send half messages."""
        self._running = True
        self._beat()
        self._tick()

    def stop(self) -> None:
        """Send no more half messages; open transactions are still ended."""
        self._running = False

    def close(self) -> "Deferred[None]":
        """Close the connections."""
        return self._client.stop()

    def _address(self) -> str:
        return f"{self._target().host.ip}:{LISTEN_PORT}"

    def _beat(self) -> None:
        body = {"clientID": "transactions", "producerDataSet": [{"groupName": GROUP}]}
        request = RemotingCommand(RequestCode.HEART_BEAT, {}, fastjson.encode(body))
        self._client.oneway(self._address(), request).addErrback(_expect_remoting_error)
        if self._running:
            self._host.clock.callLater(_HEARTBEAT_SECONDS, self._beat)

    def _tick(self) -> None:
        if not self._running:
            return
        self._host.clock.callLater(self._random.expovariate(1 / self._pause), self._tick)
        self._count += 1
        key = f"t-{self._count:05d}"
        text = f"UNIQ_KEY\x01{key}\x02TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02WAIT\x01true"
        request = send_request(GROUP, TOPIC, 0, b"x" * 20, text, self._host.now_ms())
        sent = self._client.invoke(self._address(), request, _SEND_TIMEOUT_MS)
        sent.addCallbacks(self._half, _expect_remoting_error, (key, self._address()))

    def _half(self, response: RemotingCommand, key: str, address: str) -> None:
        """
        Take the answer to a half message that is stored: usually decide once, sometimes twice, or
        only when the broker asks.
        """
        ext = response.ext or {}
        if "msgId" not in ext:
            return
        place = {
            "producerGroup": GROUP,
            "tranStateTableOffset": ext["queueOffset"],
            "commitLogOffset": str(int(ext["msgId"][-16:], 16)),
            "msgId": key,
            "transactionId": key,
        }
        for _ in range(self._random.choice((0, 1, 1, 2))):
            self._host.clock.callLater(self._wait(), self._end, key, place, address)

    def _wait(self) -> float:
        return self._random.choice(_LATE) * (0.5 + self._random.random())

    def _end(self, key: str, place: dict[str, str], address: str) -> None:
        request = RemotingCommand(
            RequestCode.END_TRANSACTION, {**place, "commitOrRollback": str(decision_of(key))}
        )
        asked = self._client.invoke(address, request, _SEND_TIMEOUT_MS)
        asked.addCallbacks(self._answered, _expect_remoting_error, (key,))

    def _answered(self, response: RemotingCommand, key: str) -> None:
        if response.code == 0:
            self.ended.add(key)

    def _asked(self, channel: Channel, request: RemotingCommand) -> None:
        ext = request.ext or {}
        key = ext["msgId"]
        answer = {
            "producerGroup": GROUP,
            "tranStateTableOffset": ext["tranStateTableOffset"],
            "commitLogOffset": ext["commitLogOffset"],
            "commitOrRollback": str(decision_of(key)),
            "fromTransactionCheck": "true",
            "msgId": key,
            "transactionId": ext["transactionId"],
        }
        command = RemotingCommand(RequestCode.END_TRANSACTION, answer, flag=FLAG_ONEWAY)
        self._host.clock.callLater(self._wait() / 4, self._reply, self._address(), command)

    def _reply(self, address: str, command: RemotingCommand) -> None:
        self._client.oneway(address, command).addErrback(_expect_remoting_error)


def _expect_remoting_error(failure: Failure) -> None:
    failure.trap(RemotingError)  # type: ignore[no-untyped-call]


def decision_of(key: str) -> int:
    """Return the decision about a transaction, which is always the same."""
    return TRANSACTION_COMMIT if crc32(key.encode()) % 3 else TRANSACTION_ROLLBACK


def check_transactions(records: Iterable[LogRecord], ended: set[str]) -> list[Breach]:
    """
    Judge whether each decision took effect once.

    :param records: the records of a log that lost nothing.
    :param ended: unique ids whose END was answered with success.
    """
    visible = [record.unique_id for record in records if record.topic == TOPIC]
    promises = Promises()
    for key in ended | set(visible):
        promises.sent(key)
        if decision_of(key) != TRANSACTION_COMMIT:
            promises.taken_back(key)
        elif key in ended:
            promises.acknowledged(key)
    return promises.breaches(visible, TOPIC)
