"""Takes back messages with a timer, before they are due.

Spec: timer.md, sections 2 and 6.
"""

from collections.abc import Callable

from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.topics import DLQ_PREFIX, RETRY_PREFIX
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.recall_handle import RECALL_HANDLE, RecallHandle
from rmq_ha.base.wire.route_bodies import TopicRoute
from rmq_ha.client.lookup.asking import Ask, Asking, expect
from rmq_ha.client.rules.errors import IllegalMessage, NoMaster
from rmq_ha.client.rules.namespaces import wrap


def recall(
    namespace: str,
    group: str,
    topic: str,
    recall_handle: str,
    route: Callable[[str], Asking[TopicRoute]],
) -> Asking[str]:
    """
    Recall a message; return its unique id.

    :param group: the producer group, with its namespace.
    :param route: asks for the route of a topic (with namespace).
    :raises IllegalMessage: the handle cannot be read, is of another topic, or the topic is one of
        retries or dead letters.
    :raises NoMaster: the broker that keeps the message has no master at the moment.
    :raises BrokerRefused: the broker does not recall it. The code is 604 if it does not wait there.
    """
    full = wrap(namespace, topic)
    if full.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        raise IllegalMessage(f"messages of {topic} cannot be recalled")
    handle = RecallHandle.parse(recall_handle or "")
    if handle is None:
        raise IllegalMessage("recall handle is invalid: give SendResult.recall_handle of a send")
    if handle.topic != full:
        raise IllegalMessage(f"the recall handle is of the topic {handle.topic}, not of {full}")
    topic_route = yield from route(full)
    masters = {
        item.broker_name: item.addresses[MASTER_ID]
        for item in topic_route.brokers
        if MASTER_ID in item.addresses
    }
    address = masters.get(handle.broker_name)
    if address is None:
        raise NoMaster(
            f"the broker {handle.broker_name}, which keeps the message, has no master at the "
            "moment, as far as the name servers know"
        )
    ext = {
        "producerGroup": group,
        "topic": full,
        RECALL_HANDLE: recall_handle,
        "bname": handle.broker_name,
    }
    response = yield from expect(Ask(RemotingCommand(RequestCode.RECALL_MESSAGE, ext), address))
    return (response.ext or {}).get("msgId", handle.unique_key)
