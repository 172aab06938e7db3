"""Looking things up: routes, offsets of queues, stored messages.

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
"""A broker looks at held pulls every 5 s, so its answer may be that late."""
_FOREVER = (1 << 63) - 1


class PullTerms(NamedTuple):
    """
    What a pull wants of its queue.

    :ivar group: in whose name; nothing is committed for it.
    :ivar hold_ms: how long the broker may wait for a message.
    """

    group: str
    max_nums: int = 32
    selector: str | MessageSelector = "*"
    hold_ms: int = 0


def topic_route(topic: str) -> Asking[TopicRoute]:
    """
    Where a topic is.

    :raises NoRoute: the name server does not know it, or says something else than a route.
    :raises BrokerRefused: the name server is in trouble.
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
    """All brokers, as a name server knows them; raises BrokerRefused."""
    command = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
    response = yield from expect(Ask(command))
    return ClusterInfo.decode(response.body or b"{}")


def addresses_in(route: TopicRoute, broker_name: str) -> dict[int, str]:
    """
    Of one broker, by id.

    :raises MQClientError: the route has no such broker.
    """
    for item in route.brokers:
        if item.broker_name == broker_name:
            return item.addresses
    known = ", ".join(sorted(item.broker_name for item in route.brokers)) or "none"
    raise MQClientError(f"no address of the broker {broker_name} is known (known: {known})")


def in_order(addresses: dict[int, str]) -> list[str]:
    """The master first, if there is one."""
    return [addresses[broker_id] for broker_id in sorted(addresses)]


def queue_number(
    code: int, addresses: dict[int, str], queue: MessageQueue, field: str = "offset", **more: str
) -> Asking[int]:
    """
    What the master, or else a slave, says about a queue.

    :raises BrokerRefused: it answers with another code than success.
    :raises RemotingError: none answers.
    """
    ext = {"topic": queue.topic, "queueId": str(queue.queue_id), **more}
    response = yield from expect_any(RemotingCommand(code, ext), in_order(addresses))
    return number(response, field)


def committed_offset(addresses: dict[int, str], group: str, queue: MessageQueue) -> Asking[int]:
    """A group's offset; -1 when it has none; raises as `queue_number`."""
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

    :raises BrokerRefused: it does not.
    :raises RemotingError: none answers.
    """
    yield from expect_any(commit_command(group, queue, offset), in_order(addresses))


def commit_command(group: str, queue: MessageQueue, offset: int) -> RemotingCommand:
    """UPDATE_CONSUMER_OFFSET."""
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
    Messages from an offset on; a slave is asked when the master does not answer.

    :param choice: whom to ask first; it learns from the answers.
    :raises BrokerRefused: another code than those of a `PullStatus`.
    :raises RemotingError: none of the addresses answers.
    :raises CorruptRecord: the answer has other things than records.
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
    """As `pull`, but nothing is decoded; brokers choose by the hash of a tag only."""
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
        """None when it is another kind of id: the port's upper half must be 0."""
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
    The message whose record begins there.

    :raises BrokerRefused: the broker has none there.
    :raises RemotingError: it does not answer.
    """
    command = RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(place.offset)})
    response = yield from expect(Ask(command, place.address))
    messages = decode_messages(response.body or b"")
    if not messages:
        raise BrokerRefused(response.code, "the answer has no message", place.address)
    return messages[0]


class KeyQuery(NamedTuple):
    """
    What to look for in the index.

    :ivar unique: `key` is the id that the message's producer gave it.
    :ivar max_num: of each broker.
    :ivar begin_ms: stored since, ms since the epoch.
    """

    topic: str
    key: str
    unique: bool = False
    max_num: int = 32
    begin_ms: int = 0
    end_ms: int = _FOREVER

    def command(self) -> RemotingCommand:
        """:raises IllegalMessage: there is no key."""
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
        """Brokers compare hashes only."""
        if message.topic != self.topic:
            return False
        if self.unique:
            return message.properties.get(UNIQ_KEY) == self.key
        return self.key in message.keys.split(KEY_SEPARATOR)


def messages_by_key(query: KeyQuery, route: TopicRoute) -> Asking[list[MessageExt]]:
    """
    Of all brokers of the route, ordered by the time that they were stored.

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
