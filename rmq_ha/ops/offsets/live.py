"""A snapshot of a broker that runs, over remoting.

Spec: remoting.md, sections 7.4 to 7.6, and chapter 8.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rmq_ha.base.errors import CannotDecide, ProtocolViolation
from rmq_ha.base.wire.bodies import (
    GroupTable,
    TopicTable,
    decode_delay_offsets,
    decode_kv_table,
    decode_offset_table,
    decode_queue_table,
)
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.ops.offsets import model
from rmq_ha.ops.offsets.model import Fact, Snapshot

Call = Callable[[RemotingCommand], RemotingCommand]

_OURS = "embeddedNamesrvPort"
"""A configuration key that Java's broker does not have."""


class LiveReplica:
    """
    A running broker of which snapshots are taken.

    :param call: sends a request to it. It raises BrokerRefused if the broker refuses, and
        CannotDecide if the broker does not answer.
    :param place: the place as the user wrote it.
    """

    def __init__(self, call: Call, place: str, now_ms: Callable[[], int]) -> None:
        self._call = call
        self._place = place
        self._now_ms = now_ms

    def snapshot(self, topics: Mapping[str, int] | None = None) -> Snapshot:
        """
        Ask for all facts.

        Offsets are asked for before the ends of their queues, so that no offset seems to lie beyond
        an end that has moved meanwhile.

        :param topics: number of queues by topic, for further topics that only the other side has.
        :raises CannotDecide: an answer makes no sense.
        """
        began = self._now_ms()
        try:
            configuration = self._configuration()
            facts = list(self._tables(configuration))
            # Kinds that this broker cannot tell are left out, so that their absence is no finding.
            known = {kind for kind in model.NUMBERS + model.TEXTS if kind != model.DELAY}
            if self._knows_delays(configuration):
                known.add(model.DELAY)
                body = self._body(RequestCode.GET_ALL_DELAY_OFFSET)
                facts += model.delay_facts(decode_delay_offsets(body))
            table = TopicTable.decode(self._body(RequestCode.GET_ALL_TOPIC_CONFIG))
            own = _own_topics(configuration)
            facts += model.topic_facts(table, own)
            facts += self._queues(table, topics or {})
            facts.append(self._log())
        except BrokerRefused as refused:
            raise CannotDecide(f"{self._place}: {refused}") from None
        except (ProtocolViolation, KeyError, ValueError, TypeError) as error:
            raise CannotDecide(f"{self._place} answers nonsense: {error}") from None
        number = configuration.get("brokerId", "")
        return Snapshot(
            self._place,
            configuration.get("brokerName"),
            int(number) if number.isdecimal() else None,
            configuration.get("brokerRole"),
            False,
            began,
            self._now_ms(),
            frozenset(known),
            tuple(facts),
            own=frozenset(own),
        )

    def _configuration(self) -> dict[str, str]:
        """Return the broker's configuration, which it sends as lines of `key=value`."""
        answer = self._call(RemotingCommand(RequestCode.GET_BROKER_CONFIG))
        lines = (answer.body or b"").decode(errors="replace").splitlines()
        return {key: value for key, _, value in (line.partition("=") for line in lines)}

    def _knows_delays(self, configuration: Mapping[str, str]) -> bool:
        """
        Return whether the broker's delay offsets are up to date. A Java slave answers with those of
        its start, and writes the ones that it copies only to its disk.
        """
        return configuration.get("brokerRole") != model.SLAVE_ROLE or _OURS in configuration

    def _tables(self, configuration: Mapping[str, str]) -> Iterator[Fact]:
        """Yield the facts of groups and of consumer offsets."""
        groups = self._body(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        yield from model.group_facts(GroupTable.decode(groups))
        offsets = self._body(RequestCode.GET_ALL_CONSUMER_OFFSET)
        yield from model.offset_facts(decode_offset_table(offsets))

    def _queues(self, table: TopicTable, more: Mapping[str, int]) -> Iterator[Fact]:
        """Yield where each queue begins and ends, also of the topics in `more`."""
        numbers = dict(more)
        for name, number in model.queue_numbers(table).items():
            numbers[name] = max(numbers.get(name, 0), number)
        for name, number in numbers.items():
            bounds = self._bounds(name)
            for queue_id in range(number):
                if queue_id not in bounds:
                    bounds[queue_id] = self._bounds_of(name, queue_id)
            for queue_id, (low, end) in sorted(bounds.items()):
                yield model.queue_fact(name, queue_id, low, end)

    def _bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return the first offsets and ends of all writable queues of a topic, with one request."""
        try:
            body = self._body(RequestCode.GET_TOPIC_STATS_INFO, topic=topic)
        except BrokerRefused as refused:
            if refused.code == ResponseCode.TOPIC_NOT_EXIST:
                return {}
            raise
        return {
            queue.queue_id: (max(0, int(item["minOffset"])), max(0, int(item["maxOffset"])))
            for queue, item in decode_queue_table(body).items()
        }

    def _bounds_of(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the first offset and the end of one queue, with two requests."""
        offsets = []
        for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
            ext = {"topic": topic, "queueId": str(queue_id)}
            answer = self._call(RemotingCommand(code, ext))
            offsets.append(max(0, int((answer.ext or {})["offset"])))
        return offsets[0], offsets[1]

    def _log(self) -> Fact:
        table = decode_kv_table(self._body(RequestCode.GET_BROKER_RUNTIME_INFO))
        return model.log_fact(int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"]))

    def _body(self, code: int, **ext: Any) -> bytes:
        """Send a request, and return the body of the answer, or raise CannotDecide."""
        body = self._call(RemotingCommand(code, ext)).body
        if not body:
            raise CannotDecide(f"{self._place} answers request {int(code)} with nothing")
        return body


def _own_topics(configuration: Mapping[str, str]) -> list[str]:
    """Return the topics that each broker creates for itself."""
    names = ("brokerName", "brokerClusterName", "msgTraceTopicName")
    return [configuration[name] for name in names if configuration.get(name)]
