"""Requests for routes, offsets of queues, and stored messages.

Spec: remoting.md, sections 7.4, 7.8 and 9.5.
"""

from binascii import unhexlify
from collections.abc import Iterable
from typing import NamedTuple

from rmq_ha.base.errors import RemotingError, RmqHaError
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.properties import UNIQ_KEY
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.route_bodies import ClusterInfo, TopicRoute
from rmq_ha.client.lookup.asking import Ask, Asking, expect, expect_any, number
from rmq_ha.client.lookup.pulls import Pull, PulledRecords, pull_request, read_pulled
from rmq_ha.client.lookup.requests import route_request
from rmq_ha.client.rules.broker_choice import BrokerChoice
from rmq_ha.client.rules.errors import BrokerRefused, IllegalMessage, MQClientError, NoRoute
from rmq_ha.client.rules.messages import (
    KEY_SEPARATOR,
    MessageExt,
    PullResult,
    decode_messages,
    decode_pulled,
)
from rmq_ha.client.rules.subscriptions import MessageSelector, chosen, subscription

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
HOLD_MARGIN_MS = 10_000
"""Time added to `hold_ms` for the answer, in ms: a broker looks at held pulls every 5 s."""
_FOREVER = (1 << 63) - 1


class PullTerms(NamedTuple):
    """
    The arguments of a pull besides its queue and offset.

    :ivar group: the group in whose name is pulled; no offset is committed.
    :ivar max_nums: how many messages are wanted at most.
    :ivar hold_ms: how long the broker may wait for a message, in ms.
    """

    group: str
    max_nums: int = 32
    selector: str | MessageSelector = "*"
    hold_ms: int = 0


def topic_route(topic: str) -> Asking[TopicRoute]:
    """
    Ask a name server for the route of a topic.

    :raises NoRoute: the name server does not know the topic, or its answer is no route.
    :raises BrokerRefused: the name server answers with another error code.
    """
    response = yield from expect(Ask(route_request(topic)), (ResponseCode.TOPIC_NOT_EXIST,))
    if response.code:
        raise NoRoute(topic, response.remark or "no broker has it")
    if not response.body:
        raise BrokerRefused(response.code, response.remark, "the name server")
    try:
        return TopicRoute.decode(response.body)
    except RmqHaError as error:
        raise NoRoute(topic, f"the name server's answer cannot be read: {error}") from None


def cluster_info() -> Asking[ClusterInfo]:
    """Ask a name server for all brokers; raises `BrokerRefused`."""
    command = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
    response = yield from expect(Ask(command))
    return ClusterInfo.decode(response.body or b"{}")


def addresses_in(route: TopicRoute, broker_name: str) -> dict[int, str]:
    """
    Return the addresses of one broker name, by broker id.

    :raises MQClientError: the route has no such broker.
    """
    for item in route.brokers:
        if item.broker_name == broker_name:
            return item.addresses
    known = ", ".join(sorted(item.broker_name for item in route.brokers)) or "none"
    raise MQClientError(f"no address of the broker {broker_name} is known (known: {known})")


def in_order(addresses: dict[int, str]) -> list[str]:
    """Return addresses in the order of broker ids, so that a master comes first."""
    return [addresses[broker_id] for broker_id in sorted(addresses)]


def queue_number(
    code: int, addresses: dict[int, str], queue: MessageQueue, field: str = "offset", **more: str
) -> Asking[int]:
    """
    Ask the master, or else a slave, for a number about a queue.

    :param field: the field of the answer's header that has the number.
    :raises BrokerRefused: the broker answers with another code than success.
    :raises RemotingError: no address answers.
    """
    ext = {"topic": queue.topic, "queueId": str(queue.queue_id), **more}
    response = yield from expect_any(RemotingCommand(code, ext), in_order(addresses))
    return number(response, field)


def committed_offset(addresses: dict[int, str], group: str, queue: MessageQueue) -> Asking[int]:
    """Ask for a group's offset; -1 if it has none. Raises as `queue_number` does."""
    try:
        return (
            yield from queue_number(
                RequestCode.QUERY_CONSUMER_OFFSET, addresses, queue, consumerGroup=group
            )
        )
    except BrokerRefused as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return -1
        raise


def commit_offset(
    addresses: dict[int, str], group: str, queue: MessageQueue, offset: int
) -> Asking[None]:
    """
    Have the master, or else a slave, keep a group's offset.

    :raises BrokerRefused: the broker refuses.
    :raises RemotingError: no address answers.
    """
    yield from expect_any(commit_command(group, queue, offset), in_order(addresses))


def commit_command(group: str, queue: MessageQueue, offset: int) -> RemotingCommand:
    """Make the request that has a broker keep a group's offset (UPDATE_CONSUMER_OFFSET)."""
    ext = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "commitOffset": str(offset),
    }
    return RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext)


def pull(
    choice: BrokerChoice,
    addresses: dict[int, str],
    queue: MessageQueue,
    offset: int,
    terms: PullTerms,
) -> Asking[PullResult]:
    """
    Pull messages from an offset on; a slave is asked if the master does not answer.

    :param choice: chooses the address to ask first; it learns from the answers.
    :raises BrokerRefused: the answer's code stands for no `PullStatus`.
    :raises RemotingError: no address answers.
    :raises CorruptRecord: the answer's body is no sequence of records.
    """
    data = subscription(queue.topic, terms.selector, 0)
    pulled = yield from pull_records(choice, addresses, queue, offset, terms)
    messages, left = decode_pulled(pulled.body, queue.broker_name)
    return PullResult(
        pulled.status,
        pulled.next_begin_offset if left is None else left,
        pulled.min_offset,
        pulled.max_offset,
        chosen(messages, data),
        pulled.suggest_which_broker_id,
    )


def pull_records(
    choice: BrokerChoice,
    addresses: dict[int, str],
    queue: MessageQueue,
    offset: int,
    terms: PullTerms,
) -> Asking[PulledRecords]:
    """
    Pull as `pull` does, but return encoded records. They may have other tags than those wanted, as
    brokers choose by the hash of a tag.
    """
    data = subscription(queue.topic, terms.selector, 0)
    timeout_ms = terms.hold_ms + HOLD_MARGIN_MS if terms.hold_ms else 0
    wish = Pull(queue, data, offset, terms.max_nums, timeout_ms)
    wish.hold_ms, wish.send_expression = terms.hold_ms, True
    command = pull_request(terms.group, wish, is_master=False)
    left = dict(addresses)
    while True:
        chosen_address = choice.address(queue, left)
        if chosen_address is None:
            raise MQClientError(f"no address of the broker {queue.broker_name} is known")
        address, broker_id = chosen_address
        try:
            response = yield Ask(command, address, timeout_ms)
        except RemotingError:
            choice.failed(address)
            del left[broker_id]
            if not left:
                raise
            continue
        choice.answered(address)
        result = read_pulled(response, address, broker_id)
        choice.suggest(queue, result.suggest_which_broker_id)
        return result


class PlaceId(NamedTuple):
    """An offsetMsgId, taken apart: the broker's address and an offset in its commit log."""

    address: str
    offset: int

    @classmethod
    def parse(cls, text: str) -> "PlaceId | None":
        """Parse an id; return None if it is of another kind, whose bytes make no valid port."""
        if len(text) not in (32, 56):
            return None
        try:
            data = unhexlify(text)
        except ValueError:
            return None
        size = len(data) - 12
        port = int.from_bytes(data[size : size + 4])
        if not 0 < port < 65536:
            return None
        place = Address(data[:size], port)
        return cls(str(place), int.from_bytes(data[size + 4 :]))


def message_at(place: PlaceId) -> Asking[MessageExt]:
    """
    Ask a broker for the message whose record begins at an offset.

    :raises BrokerRefused: no record begins there.
    :raises RemotingError: the broker does not answer.
    """
    command = RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(place.offset)})
    response = yield from expect(Ask(command, place.address))
    messages = decode_messages(response.body or b"")
    if not messages:
        raise BrokerRefused(response.code, "the answer has no message", place.address)
    return messages[0]


class KeyQuery(NamedTuple):
    """
    A query of the brokers' index.

    :ivar unique: whether `key` is the unique id that the message's producer gave it.
    :ivar max_num: most messages of each broker.
    :ivar begin_ms: earliest time of storing, in ms since the epoch.
    :ivar end_ms: latest time of storing, in ms since the epoch.
    """

    topic: str
    key: str
    unique: bool = False
    max_num: int = 32
    begin_ms: int = 0
    end_ms: int = _FOREVER

    def command(self) -> RemotingCommand:
        """
        Make the request by which one broker is asked (QUERY_MESSAGE).

        :raises IllegalMessage: the key is empty.
        """
        if not self.key:
            raise IllegalMessage("a key to look for is not empty")
        ext = {
            "topic": self.topic,
            "key": self.key,
            "maxNum": str(self.max_num),
            "beginTimestamp": str(self.begin_ms),
            "endTimestamp": str(self.end_ms),
        }
        if self.unique:
            ext[UNIQUE_KEY_QUERY] = "true"
        return RemotingCommand(RequestCode.QUERY_MESSAGE, ext)

    def matches(self, message: MessageExt) -> bool:
        """Whether a message really has the key: brokers compare only hashes."""
        if message.topic != self.topic:
            return False
        if self.unique:
            return message.properties.get(UNIQ_KEY) == self.key
        return self.key in message.keys.split(KEY_SEPARATOR)


def messages_by_key(query: KeyQuery, route: TopicRoute) -> Asking[list[MessageExt]]:
    """
    Ask all brokers of a route for the messages of a query, in the order of storing.

    :raises BrokerRefused: a broker refuses.
    :raises RemotingError: neither master nor slave of a broker answers.
    """
    messages: list[MessageExt] = []
    for item in route.brokers:
        response = yield from expect_any(
            query.command(), in_order(item.addresses), (ResponseCode.QUERY_NOT_FOUND,)
        )
        if not response.code and response.body:
            messages += _matching(query, decode_messages(response.body, item.broker_name))
    return sorted(messages, key=lambda message: (message.store_timestamp, message.queue_offset))


def _matching(query: KeyQuery, messages: Iterable[MessageExt]) -> list[MessageExt]:
    return [message for message in messages if query.matches(message)]
