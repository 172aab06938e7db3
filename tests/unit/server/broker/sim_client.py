"""A client of a simulated broker that notes what it is pushed and answers as it is told."""

from collections.abc import Callable
from typing import Any

from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.wire.bodies import ConsumerData, HeartbeatData, ProducerData
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.unit.server.broker.sim_broker import SimBroker

SILENT = "silent"
PUSHES = (
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
)


class SimClient:
    """
    Consumer of one group and producer of `PG`.

    :ivar pushed: what came, in order, without announcements of members.
    :ivar answers: request code to what it answers: a response, a function of the request, or
        `SILENT`.
    """

    def __init__(
        self,
        broker: SimBroker,
        client_id: str = "c1",
        group: str = "g",
        topic: str = "T",
        version: int = 407,
        language: str = "JAVA",
    ) -> None:
        self._broker = broker
        self.client_id = client_id
        self.pushed: list[RemotingCommand] = []
        self.answers: dict[int, Any] = {}
        self._client = RemotingClient(broker.client_host.seams, NettyClientConfig())
        for code in PUSHES:
            self._client.routes[code] = self._receive
        data = HeartbeatData(
            client_id,
            [ConsumerData(group, subscriptions=[SubscriptionData.for_tags(topic, "*", 1)])],
            [ProducerData("PG")],
        )
        beat = RemotingCommand(RequestCode.HEART_BEAT, None, data.encode())
        beat.version, beat.language = version, language
        assert self.ask(beat).code == 0

    def ask(self, request: RemotingCommand) -> RemotingCommand:
        """One request over this client's own connection."""
        address = f"{self._broker.host.ip}:{LISTEN_PORT}"
        answer: RemotingCommand = self._broker.wait(self._client.invoke(address, request, 20_000))
        return answer

    def leave(self) -> None:
        """Its connection ends."""
        self._client.close(f"{self._broker.host.ip}:{LISTEN_PORT}")

    def _receive(self, channel: Any, request: RemotingCommand) -> RemotingCommand | None:
        if request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            return None
        self.pushed.append(request)
        answer = self.answers.get(request.code, SILENT)
        if isinstance(answer, Callable):  # type: ignore[arg-type]
            answer = answer(request)
        if answer is SILENT:
            return None
        response = request.response()
        response.code, response.remark = answer.code, answer.remark
        response.ext, response.body = answer.ext, answer.body
        response.language, response.version = answer.language, answer.version
        return response
