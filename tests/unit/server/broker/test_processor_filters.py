"""SQL92 subscriptions in pulls and heartbeats. Spec: remoting.md, sections 6.2, 6.5 and 7.1."""

from typing import Any

import pytest
from zope.interface.verify import verifyObject

from rmq_ha.base.filter.selector import Selector
from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.message import DispatchRequest
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.server.broker.filters import RetryFilter, SelectorFilter
from tests.kits.channel import FakeChannel
from tests.unit.server.broker.asked_broker import AskedBroker
from tests.unit.server.broker.test_processor_pull import last, pull

RETRY = "%RETRY%G1"


class Filtered(AskedBroker):
    """Some messages, and SQL92 switched on."""

    def __init__(self) -> None:
        super().__init__()
        self.broker_config.enable_property_filter = True
        self.topics.update(TopicConfig(RETRY, 1, 1, 6))
        for number in range(6):
            self.put("TopicA", a=str(number), TAGS="TB" if number % 2 else "TA")

    def found(self, topic: str = "TopicA", **changes: Any) -> tuple[int, list[int]]:
        """The code, and the queue offsets of what came."""
        answer = pull(self, topic=topic, **changes)
        records = [
            self.record(topic, 0, number)
            for number in range(self.store.max_offset_in_queue(topic, 0))
        ]
        body = answer.body or b""
        return answer.code, [number for number, record in enumerate(records) if record in body]

    def subscribe(self, expression: str, version: int = 2, **more: Any) -> FakeChannel:
        channel = FakeChannel()
        more = {"kind": "SQL92", **more}
        self.heartbeat(channel, "c", "G1", "TopicA", expression=expression, version=version, **more)
        return channel


def sql(expression: str | None, **changes: Any) -> dict[str, Any]:
    return {"subscription": expression, "expressionType": "SQL92", **changes}


def test_filters_provide_their_interface() -> None:
    one = SelectorFilter(Selector("a = 1"))
    assert verifyObject(IMessageFilter, one)
    assert verifyObject(IMessageFilter, RetryFilter(one, AskedBroker().filters, "G"))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (sql("a > 3"), (0, [4, 5])),
        (sql("a > 3 AND TAGS = 'TA'"), (0, [4])),
        (sql("a > 9"), (20, [])),
        (sql("a > "), (0, [0, 1, 2, 3, 4, 5])),
        (sql(""), (23, [])),
        (sql(None), (23, [])),
        (sql("a > 3", expressionType="FOO"), (0, [0, 1, 2, 3, 4, 5])),
        (sql("TA", expressionType="TAG"), (0, [0, 2, 4])),
        (sql("TA", expressionType=""), (20, [])),
        (sql("*", expressionType=""), (0, [0, 1, 2, 3, 4, 5])),
        (sql("||", expressionType="TAG"), (23, [])),
        (sql("|||", expressionType="TAG"), (20, [])),
        (sql("TA || TC", expressionType=None), (0, [0, 2, 4])),
    ],
)
def test_the_subscription_of_the_request(
    changes: dict[str, Any], expected: tuple[int, list[int]]
) -> None:
    assert Filtered().found(**changes) == expected


def test_the_subscription_of_the_group() -> None:
    kit = Filtered()
    channel = kit.subscribe("a > 3")
    assert kit.found(sysFlag=0) == (0, [4, 5])
    assert kit.found(sysFlag=0, subVersion=3)[0] == 25
    kit.subscribe("a >", version=3)
    assert kit.found(sysFlag=0, subVersion=3)[0] == 27
    kit.subscribe("a = 1", version=4)
    assert kit.found(sysFlag=0, subVersion=4) == (0, [1])
    kit.subscribe("", version=5)
    assert kit.found(sysFlag=0, subVersion=5)[0] == 28
    assert kit.found(sysFlag=0, subVersion=4) == (0, [1])
    assert channel.is_open


def test_nothing_by_sql_unless_it_is_switched_on() -> None:
    kit = Filtered()
    kit.broker_config.enable_property_filter = False
    assert kit.found(**sql("a > 3"))[0] == 1
    assert kit.found(**sql(""))[0] == 23
    kit.subscribe("a > 3")
    assert kit.found(sysFlag=0)[0] == 1
    assert kit.found(sysFlag=0, subVersion=9)[0] == 25
    answer = pull(kit, **sql("a > 3"))
    assert answer.remark == "The broker does not support consumer to filter message by SQL92"
    assert answer.ext == {}


def test_a_group_that_is_gone_takes_its_filters_with_it() -> None:
    kit = Filtered()
    first, second = kit.subscribe("a > 3"), kit.subscribe("a > 3")
    data = kit.filters.get("TopicA", "G1")
    assert data is not None
    first.close()
    assert not data.is_dead
    kit.request(35, {"clientID": "c", "consumerGroup": "G1"}, channel=second)
    assert data.is_dead
    third = kit.subscribe("a > 3")
    assert not data.is_dead
    third.close()
    assert data.is_dead


@pytest.mark.parametrize(
    ("kind", "expression", "expected"),
    [
        ("SQL92", "a > 3", 0),
        ("SQL92", "a >", 23),
        ("SQL92", "", 23),
        ("SQL92", None, 23),
        ("FOO", "a > 3", 23),
        ("TAG", "||", 0),
        (None, None, 0),
    ],
)
def test_clients_may_ask_first(kind: str | None, expression: str | None, expected: int) -> None:
    body = {"subscriptionData": {"topic": "T", "expressionType": kind, "subString": expression}}
    assert Filtered().request(46, None, body).code == expected


def test_the_remark_says_what_is_wrong_and_where() -> None:
    body = {"subscriptionData": {"topic": "T", "expressionType": "SQL92", "subString": "a > 'x'"}}
    assert Filtered().request(46, None, body).remark == (
        "Invalid MessageSelector: only properties and numbers have an order, at character 3"
    )


def test_a_held_pull_wakes_for_what_it_wants() -> None:
    kit = Filtered()
    held = pull(kit, **sql("a > 3 AND b IS NULL", sysFlag=6, queueOffset=6))
    assert held is None

    def arrive(**properties: str) -> int:
        kit.put("TopicA", **properties)
        return len(kit.channel.sent)

    assert arrive(a="1") == 0
    assert arrive(a="x") == 0
    assert arrive(a="7", b="9") == 0
    assert arrive(a="7") == 1
    answer = last(kit.channel)
    assert (answer.code, answer.ext and answer.ext["nextBeginOffset"]) == (0, "10")


def test_a_held_pull_looks_at_messages_without_properties() -> None:
    kit = Filtered()
    pull(kit, **sql("a > 3", sysFlag=6, queueOffset=6))
    kit.put("TopicA")
    assert last(kit.channel).code == 20


def test_retries_are_filtered_by_what_is_wanted_of_the_first_topic() -> None:
    kit = Filtered()
    kit.subscribe("a > 3")
    for number in range(6):
        kit.put(RETRY, a=str(number), RETRY_TOPIC="TopicA", TAGS="T" if number else "")
    kit.put(RETRY, a="1", RETRY_TOPIC="Other")
    kit.put(RETRY, a="1")
    everything = {"topic": RETRY, "subscription": "*"}
    assert kit.found(**everything) == (0, [0, 1, 2, 3, 4, 5, 6, 7])
    kit.broker_config.filter_support_retry = True
    assert kit.found(**everything) == (0, [4, 5, 6, 7])
    assert kit.found(topic=RETRY, subscription="T") == (0, [4, 5])
    assert kit.found(topic=RETRY, **sql("a < 5")) == (0, [4, 5, 6, 7])
    assert kit.found(**sql("a < 2")) == (0, [0, 1])
    kit.heartbeat(FakeChannel(), "c", "G1", "TopicA", expression="a = 1", version=9, kind="SQL92")
    assert kit.found(**everything) == (0, [1, 6, 7])


def test_bit_maps_spare_the_look_at_messages_that_came_after_the_filter() -> None:
    kit = Filtered()
    kit.subscribe("a > 3")
    kit.heartbeat(FakeChannel(), "c", "G2", "TopicA", expression="a < 2", kind="SQL92")
    kit.heartbeat(FakeChannel(), "c", "G3", "TopicA", expression="TA", version=2)
    rows: list[Any] = []
    kit.store.on_arrival(rows.extend)
    kit.put("TopicA", a="5")
    request = DispatchRequest._make(rows[-1])
    bit_map = kit.filters.bit_map(request)
    assert bit_map is not None
    assert len(bit_map) * 8 == kit.filters.bloom_filter.bits
    assert kit.filters.bit_map(request._replace(topic="TopicB")) is None
    for group, expected in (("G1", True), ("G2", False)):
        data = kit.filters.get("TopicA", group)
        assert data is not None
        assert data.selector is not None
        one = SelectorFilter(data.selector, data)
        after = data.born_ms + 1
        assert one.matches_extension(0, after, bit_map) is expected
        assert one.matches_extension(0, data.born_ms, bit_map)
        assert one.matches_extension(0, after, None)
        assert one.matches_extension(0, after, bit_map + b"x")
        assert SelectorFilter(data.selector).matches_extension(0, after, bit_map)
        assert RetryFilter(None, kit.filters, group).matches_extension(0, after, bit_map)
