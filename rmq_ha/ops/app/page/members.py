"""Asks the members of a consumer group for their queues, which only they know."""

from typing import Any, cast

from twisted.internet.defer import DeferredList, maybeDeferred

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire.bodies import decode_queue_table
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.versions import V3_1_8_SNAPSHOT
from rmq_ha.server.broker.client_calls import ClientCalls

MOST_ASKED = 50
TIMEOUT_MS = 1500
MOST_BODY = 1 << 20


async def ask_members(broker: Any, group: str) -> dict[tuple[str, int], str]:
    """
    Return client ids by topic and queue; members that do not answer in time are left out.

    :param broker: a `Broker`.
    """
    info = broker.consumers.group(group)
    owners: dict[tuple[str, int], str] = {}
    if info is None or info.message_model != "CLUSTERING":
        return owners
    calls = ClientCalls(MOST_ASKED, "questions of the page")
    asked = []
    for member in list(info.members.values())[:MOST_ASKED]:
        if member.version < V3_1_8_SNAPSHOT:
            continue
        ext = {"consumerGroup": group, "clientId": member.client_id, "jstackEnable": "false"}
        command = RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, ext)
        asking = maybeDeferred(calls.invoke, cast(Channel, member.channel), command, TIMEOUT_MS)
        asked.append(asking.addCallback(_note, member.client_id, owners))
    await DeferredList(asked, consumeErrors=True)
    return owners


def _note(answer: RemotingCommand, client_id: str, owners: dict[tuple[str, int], str]) -> None:
    if answer.code or not answer.body or len(answer.body) > MOST_BODY:
        return
    try:
        table = decode_queue_table(answer.body, "mqTable")
    except (ProtocolViolation, TypeError, ValueError):
        return  # an answer for another client, or not of a push consumer
    for queue in table:
        owners[queue.topic, queue.queue_id] = client_id
