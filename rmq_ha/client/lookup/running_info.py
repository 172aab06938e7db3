"""Requests for a consumer's running info: its queues, rates and threads.

Spec: remoting.md, appendix B (B13).
"""

from typing import NamedTuple

from rmq_ha.base.wire.bodies import MessageQueue, decode_queue_table, read_body
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.asking import Ask, Asking, expect

_TIMEOUT_MS = 10_000
"""Timeout in ms; a Java client with many threads needs a while to write their stacks."""


class HeldQueue(NamedTuple):
    """
    A queue that a consumer has.

    :ivar offset: the offset that the consumer has committed, or will commit next.
    :ivar cached: how many messages it has pulled and not consumed.
    """

    queue: MessageQueue
    offset: int
    cached: int


class TopicPace(NamedTuple):
    """One member's rates for a topic, in messages per second, and its time per message in ms."""

    topic: str
    consumed: float
    failed: float
    takes_ms: float


class RunningInfo(NamedTuple):
    """
    A consumer's running info.

    :ivar stacks: the stacks of its threads; empty unless they were asked for.
    """

    queues: list[HeldQueue]
    pace: list[TopicPace]
    stacks: str


def running_info(
    address: str, group: str, client_id: str, *, stacks: bool = False
) -> Asking[RunningInfo]:
    """
    Ask a broker, which asks the member.

    :raises BrokerRefused: the member is not connected, or too old to know the question.
    :raises RemotingError: the broker does not answer.
    :raises ProtocolViolation: the member's answer has another form.
    """
    ext = {
        "consumerGroup": group,
        "clientId": client_id,
        "jstackEnable": "true" if stacks else "false",
    }
    command = RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, ext)
    response = yield from expect(Ask(command, address, _TIMEOUT_MS))
    body = response.body or b"{}"
    pace, text = read_body(
        body,
        lambda value: (
            [
                TopicPace(
                    str(topic),
                    float(item["consumeOKTPS"]),
                    float(item["consumeFailedTPS"]),
                    float(item["consumeRT"]),
                )
                for topic, item in sorted((value.get("statusTable") or {}).items())
            ],
            str(value.get("jstack") or ""),
        ),
        None,
    )
    table = decode_queue_table(body, "mqTable")
    queues = read_body(
        body,
        lambda _: sorted(
            HeldQueue(queue, int(item.get("commitOffset", 0)), int(item.get("cachedMsgCount", 0)))
            for queue, item in table.items()
        ),
        None,
    )
    return RunningInfo(queues, pace, text)
