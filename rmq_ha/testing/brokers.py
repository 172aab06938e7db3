"""Whole brokers and a name server on simulated machines, and clients that talk to them."""

from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.plugin import getPlugins
from twisted.python.failure import Failure

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.netty import NettyClientConfig, NettyServerConfig
from rmq_ha.base.errors import RemotingError
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import pull_request, send_request
from rmq_ha.server.broker.broker import Broker
from rmq_ha.server.namesrv.namesrv import Namesrv
from rmq_ha.testing.cluster import LISTEN_PORT, StoreNode
from rmq_ha.testing.findings import Findings
from rmq_ha.testing.host import SimHost
from rmq_ha.testing.images import LogRecord, parse_record
from rmq_ha.testing.workload import QUEUES, TOPICS, Attempt, Audience

NAMESRV_PORT = 9876
SEND_TIMEOUT_MS = 5000
PULL_TIMEOUT_MS = 3000
UPDATE_CONSUMER_OFFSET = 15
PULL_OFFSET_MOVED = 21
GROUP = "sim-group"

_STATUS_BY_CODE = {
    0: PutMessageStatus.PUT_OK,
    10: PutMessageStatus.FLUSH_DISK_TIMEOUT,
    11: PutMessageStatus.SLAVE_NOT_AVAILABLE,
    12: PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
    14: PutMessageStatus.SERVICE_NOT_AVAILABLE,
}


def _expect_remoting_error(failure: Failure) -> None:
    failure.trap(RemotingError)  # type: ignore[no-untyped-call]


@cache
def _installed_plugins(interface: Any) -> tuple[Any, ...]:
    """
    Return the installed plugins. A search of the folders takes a third of a start, and simulations
    start thousands of times.
    """
    return tuple(getPlugins(interface))


class BrokerNode(StoreNode):
    """A whole broker on a simulated machine."""

    def __init__(
        self,
        host: SimHost,
        configuration: BrokerConfiguration,
        findings: Findings,
        name_server: str,
    ) -> None:
        super().__init__(host, configuration, findings)
        configuration.broker.namesrv_addr = name_server
        self.broker: Any = None
        self._start_result: Deferred[None] | None = None

    def _make(self) -> Broker:
        return Broker(self.host.seams, self.configuration, _installed_plugins)

    def load(self) -> None:
        """Begin a life: run a start up to the first point where it waits."""
        self._begin()
        self.broker = self._make()
        self.store = self.broker.store
        self.replication = self.broker.journal.service
        self._start_result = self.broker.start()
        refused: list[Failure] = []
        if self._start_result.called:
            self._start_result.addErrback(refused.append)
        if refused:
            refused[0].raiseException()

    async def _start(self) -> None:
        assert self._start_result is not None
        await self._start_result

    async def _stop(self) -> None:
        await self.broker.stop()


class NamesrvNode:
    """
    A name server on a simulated machine.

    :ivar configuration: read at each start.
    """

    def __init__(self, host: SimHost) -> None:
        self.host = host
        self.configuration = NamesrvConfig(kv_config_path="/namesrv/kvConfig.json")
        self.namesrv: Any = None

    @property
    def address(self) -> str:
        """Address at which brokers and clients find the name server."""
        return f"{self.host.ip}:{NAMESRV_PORT}"

    def start(self) -> None:
        """Begin a life; harmless when the name server runs."""
        if self.namesrv is not None and self.host.is_running:
            return
        if not self.host.is_running:
            self.host.restart()
        self.namesrv = Namesrv(
            self.host.seams,
            self.configuration,
            NettyServerConfig(listen_port=NAMESRV_PORT),
        )
        self.namesrv.start()


def status_of(response: RemotingCommand) -> PutMessageStatus:
    """Return the put status that a send's response code means."""
    return _STATUS_BY_CODE.get(response.code, PutMessageStatus.UNKNOWN_ERROR)


class RemoteProducer:
    """
    Sends messages over remoting and notes every response.

    :param target: returns the present master.
    :param pause: seconds between sends, on average.
    """

    def __init__(
        self,
        name: str,
        host: SimHost,
        random: Random,
        target: Callable[[], StoreNode],
        audience: Audience,
        pause: float,
    ) -> None:
        self.attempts: dict[str, Attempt] = {}
        self._name = name
        self._host = host
        self._random = random
        self._target = target
        self._audience = audience
        self._pause = pause
        self._running = False
        self._count = 0
        self._client = RemotingClient(host.seams, NettyClientConfig())

    def start(self) -> None:
        """Send the first message within one pause, and go on until `stop`."""
        self._running = True
        self._host.clock.callLater(self._random.random() * self._pause, self._tick)

    def stop(self) -> None:
        """Send nothing more; responses still come."""
        self._running = False

    def close(self) -> "Deferred[None]":
        """Close the connections."""
        return self._client.stop()

    def _tick(self) -> None:
        if not self._running:
            return
        self._host.clock.callLater(self._random.expovariate(1 / self._pause), self._tick)
        for _ in range(self._random.choice((1, 1, 1, 8))):
            self._send()

    def _send(self) -> None:
        random, node = self._random, self._target()
        self._count += 1
        attempt = Attempt(
            f"{self._name}-{self._count:06d}",
            random.choice(TOPICS),
            random.randrange(QUEUES),
            node.life,
            self._host.clock.seconds(),
        )
        self.attempts[attempt.unique_id] = attempt
        properties = f"UNIQ_KEY\x01{attempt.unique_id}\x02WAIT\x01true"
        if random.random() < 0.3:
            properties += f"\x02TAGS\x01{random.choice(('red', 'green', 'blue'))}"
        body = random.randbytes(1) * random.choice((1, 10, 100, 300, 1000))
        request = send_request(
            GROUP, attempt.topic, attempt.queue_id, body, properties, self._host.now_ms()
        )
        address = f"{node.host.ip}:{LISTEN_PORT}"
        asked = self._client.invoke(address, request, SEND_TIMEOUT_MS)
        asked.addCallbacks(self._answered, self._no_answer, (attempt, node), {}, (attempt,))

    def _answered(self, response: RemotingCommand, attempt: Attempt, node: StoreNode) -> None:
        attempt.fired += 1
        attempt.answered_at = self._host.clock.seconds()
        attempt.status = status_of(response)
        ext = response.ext or {}
        if attempt.status.is_stored and "msgId" in ext:
            attempt.offset = int(ext["msgId"][-16:], 16)
            attempt.queue_offset = int(ext["queueOffset"])
            record = self._record(node, attempt.offset)
            attempt.end = attempt.offset + (0 if record is None else record.size)
        self._audience.answered(attempt)

    @staticmethod
    def _record(node: StoreNode, offset: int) -> LogRecord | None:
        """
        Return the master's record at an offset; None: the master is down, or has no record there.
        """
        if node.state == "down":
            return None
        data = node.store.log.record_at(offset)
        return None if data is None else parse_record(data, 0, len(data))

    def _no_answer(self, failure: Failure, attempt: Attempt) -> None:
        """Note a send without a response; it is not known whether the message is stored."""
        _expect_remoting_error(failure)
        attempt.fired += 1


class RemoteConsumer:
    """
    Pulls every queue from its beginning, in order, and commits its offsets.

    :param start_at: where to begin in queues that do not begin at 0.
    :ivar read: the unique ids in the order of arrival, by topic and queue.
    :ivar problems: messages that came out of order.
    """

    def __init__(
        self,
        host: SimHost,
        target: Callable[[], StoreNode],
        group: str = GROUP,
        start_at: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        self.read: dict[tuple[str, int], list[str]] = {}
        self.problems: list[str] = []
        self._host = host
        self._target = target
        self._group = group
        self._next: dict[tuple[str, int], int] = {}
        self._start_at = start_at or {}
        self._running = False
        self._client = RemotingClient(host.seams, NettyClientConfig())

    def start(self) -> None:
        """Begin to pull all queues."""
        self._running = True
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                self.read[topic, queue_id] = []
                self._next[topic, queue_id] = self._start_at.get((topic, queue_id), 0)
                self._pull(topic, queue_id)

    def stop(self) -> "Deferred[None]":
        """Pull nothing more and close the connections."""
        self._running = False
        return self._client.stop()

    def _pull(self, topic: str, queue_id: int) -> None:
        if not self._running:
            return
        offset = self._next[topic, queue_id]
        request = pull_request(self._group, topic, queue_id, offset)
        address = f"{self._target().host.ip}:{LISTEN_PORT}"
        asked = self._client.invoke(address, request, PULL_TIMEOUT_MS)
        asked.addCallbacks(self._pulled, self._not_pulled, (topic, queue_id))
        asked.addBoth(self._pull_again, topic, queue_id)

    def _pulled(self, response: RemotingCommand, topic: str, queue_id: int) -> float:
        """Take the messages of a response, and return for how many seconds to wait."""
        key = topic, queue_id
        if response.code == PULL_OFFSET_MOVED:
            self._next[key] = int((response.ext or {}).get("nextBeginOffset", 0))
        if response.code != 0 or not response.body:
            return 0.5
        position = 0
        while position < len(response.body):
            size = int.from_bytes(response.body[position : position + 4], "big")
            record = parse_record(response.body, position, len(response.body))
            if record is None or size < 1:
                self.problems.append(f"{key}: no record at {position} of a response")
                return 0.5
            if record.queue_offset != self._next[key]:
                self.problems.append(f"{key}: {record.queue_offset} came for {self._next[key]}")
            self.read[key].append(record.unique_id)
            self._next[key] = record.queue_offset + 1
            position += size
        self._commit(topic, queue_id)
        return 0.01

    def _commit(self, topic: str, queue_id: int) -> None:
        ext = {
            "consumerGroup": self._group,
            "topic": topic,
            "queueId": str(queue_id),
            "commitOffset": str(self._next[topic, queue_id]),
        }
        address = f"{self._target().host.ip}:{LISTEN_PORT}"
        committed = self._client.oneway(address, RemotingCommand(UPDATE_CONSUMER_OFFSET, ext))
        committed.addErrback(_expect_remoting_error)

    def _not_pulled(self, failure: Failure) -> float:
        _expect_remoting_error(failure)
        return 0.5

    def _pull_again(self, wait: Any, topic: str, queue_id: int) -> None:
        if isinstance(wait, Failure):
            self.problems.append(f"{topic} {queue_id}: {wait.getErrorMessage()}")
        elif self._running:
            self._host.clock.callLater(wait, self._pull, topic, queue_id)
