"""Lookups, groups and sends, driven by hand: what is asked of whom, and what is made of it."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.errors import RemotingConnectError, RemotingTimeout
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.process import Process
from rmq_ha.base.store_format.commitlog import Record, encode_record
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.fastjson import encode
from rmq_ha.base.wire.route_bodies import BrokerRoute, QueueRoute, TopicRoute
from rmq_ha.client.lookup.asking import Ask, Asking, drive_at_once
from rmq_ha.client.lookup.groups import EARLIEST, LATEST, consume_stats, reset_offset
from rmq_ha.client.lookup.lookups import (
    KeyQuery,
    PlaceId,
    PullTerms,
    addresses_in,
    committed_offset,
    message_at,
    messages_by_key,
    pull,
    topic_route,
)
from rmq_ha.client.rules.broker_choice import BrokerChoice
from rmq_ha.client.rules.errors import (
    BatchFailed,
    BrokerRefused,
    IllegalMessage,
    MQClientError,
    NoNameServer,
    NoRoute,
    SendFailed,
    SendTimeout,
)
from rmq_ha.client.rules.messages import Message, PullStatus, SendStatus
from rmq_ha.client.rules.queue_choice import select_by_hash
from rmq_ha.client.rules.settings import ClientConfig, ProducerConfig
from rmq_ha.client.rules.subscriptions import MessageSelector
from rmq_ha.client.send.send import PublishTopic, Send
from rmq_ha.client.send.send_asking import SendAsking, ThreadTimes
from rmq_ha.client.send.send_maker import SendMaker

MASTER, SLAVE, OTHER = "m:1", "s:1", "o:1"
QUEUE = MessageQueue("T", "a", 0)
ROUTE = TopicRoute(
    [QueueRoute("a", 2, 2, 6), QueueRoute("b", 2, 2, 6)],
    [BrokerRoute("C", "a", {0: MASTER, 1: SLAVE}), BrokerRoute("C", "b", {0: OTHER})],
)
Answers = Callable[[Ask], RemotingCommand]


def drive(asking: Asking[Any], answer: Answers) -> tuple[Any, list[Ask]]:
    """Result, and what was asked."""
    asked: list[Ask] = []
    step, value = asking.send, None
    while True:
        try:
            ask = step(value)  # type: ignore[arg-type]
        except StopIteration as end:
            return end.value, asked
        asked.append(ask)
        try:
            step, value = asking.send, answer(ask)  # type: ignore[assignment]
        except Exception as error:
            step, value = asking.throw, error  # type: ignore[assignment]


def ok(body: bytes | None = None, **ext: object) -> RemotingCommand:
    return RemotingCommand(0, {key: str(value) for key, value in ext.items()}, body)


def refuse(code: int) -> Answers:
    return lambda ask: RemotingCommand(code, {}, remark="no")


def silent(*addresses: str) -> Callable[[Ask], None]:
    def check(ask: Ask) -> None:
        if ask.address in addresses:
            raise RemotingConnectError(f"{ask.address}: refused")

    return check


def test_a_route_or_why_there_is_none() -> None:
    """TOPIC_NOT_EXIST is NoRoute; other codes are the name server's trouble."""
    route, asked = drive(topic_route("T"), lambda ask: ok(ROUTE.encode()))
    assert route == ROUTE
    assert asked[0].address == ""
    with pytest.raises(NoRoute):
        drive(topic_route("T"), refuse(ResponseCode.TOPIC_NOT_EXIST))
    with pytest.raises(BrokerRefused):
        drive(topic_route("T"), refuse(1))


def test_a_slave_is_asked_when_the_master_is_silent() -> None:
    """Offsets too; QUERY_NOT_FOUND is no offset."""

    def answer(ask: Ask) -> RemotingCommand:
        silent(MASTER)(ask)
        return ok(offset=7)

    offset, asked = drive(committed_offset({0: MASTER, 1: SLAVE}, "g", QUEUE), answer)
    assert offset == 7
    assert [ask.address for ask in asked] == [MASTER, SLAVE]
    assert drive(committed_offset({0: MASTER}, "g", QUEUE), refuse(22))[0] == -1
    with pytest.raises(BrokerRefused):
        drive(committed_offset({0: MASTER}, "g", QUEUE), lambda ask: ok())
    with pytest.raises(MQClientError):
        drive(committed_offset({}, "g", QUEUE), lambda ask: ok())
    with pytest.raises(RemotingConnectError):
        drive(committed_offset({0: MASTER}, "g", QUEUE), lambda ask: silent(MASTER)(ask) or ok())


def test_pulls_go_to_a_slave_and_back() -> None:
    """A silent master is passed over for a while; what it suggests counts."""
    now = [0.0]
    choice = BrokerChoice(lambda: now[0])
    down = [MASTER]

    def answer(ask: Ask) -> RemotingCommand:
        silent(*down)(ask)
        return RemotingCommand(
            ResponseCode.PULL_NOT_FOUND,
            {"nextBeginOffset": "5", "minOffset": "0", "maxOffset": "5"},
        )

    def addresses() -> list[str]:
        asking = pull(choice, {0: MASTER, 1: SLAVE}, QUEUE, 5, PullTerms("g"))
        result, asked = drive(asking, answer)
        assert result.pull_status is PullStatus.NO_NEW_MSG
        assert result.next_begin_offset == 5
        return [ask.address for ask in asked]

    assert addresses() == [MASTER, SLAVE]
    assert addresses() == [SLAVE]
    down.clear()
    now[0] += 60
    assert addresses() == [MASTER]


def test_a_held_pull_has_time_for_a_late_answer() -> None:
    """The broker's own sweep comes every 5 s."""
    asking = pull(BrokerChoice(lambda: 0.0), {0: MASTER}, QUEUE, 0, PullTerms("g", hold_ms=4000))
    assert next(asking).timeout_ms >= 4000 + 5000


@given(st.text(alphabet="0123456789abcdefABCDEF", max_size=60) | st.text(max_size=60))
def test_any_text_is_a_place_or_none(text: str) -> None:
    """Never an error."""
    place = PlaceId.parse(text)
    assert place is None or place.address


def test_places_and_unique_ids_are_told_apart() -> None:
    """The port's upper half is 0 in one; a pid is there in the other."""
    assert PlaceId.parse("7F00000100002A9F0000000000001234") == ("127.0.0.1:10911", 0x1234)
    assert PlaceId.parse("C00002025A38604CCFB66AAB7CF50000") is None
    six = "00000000000000000000000000000001" + "00002A9F" + "0000000000000001"
    assert PlaceId.parse(six) == ("[::1]:10911", 1)


def test_a_key_query_asks_every_broker_and_wants_a_key() -> None:
    """Nothing found at one of them is no error."""
    found, asked = drive(
        messages_by_key(KeyQuery("T", "k"), ROUTE), refuse(ResponseCode.QUERY_NOT_FOUND)
    )
    assert found == []
    assert [ask.address for ask in asked] == [MASTER, OTHER]
    with pytest.raises(IllegalMessage):
        drive(messages_by_key(KeyQuery("T", ""), ROUTE), lambda ask: ok())


def stats(broker: str, consumed: int) -> bytes:
    queue = MessageQueue("T", broker, 0)
    item = {"brokerOffset": 10, "consumerOffset": consumed, "lastTimestamp": 5}
    return encode({"consumeTps": 1.5, "offsetTable": {queue: item}})


def test_lag_is_summed_over_brokers() -> None:
    """The retry topic says which; without one the topic does; a slave answers for its master."""

    def answer(ask: Ask) -> RemotingCommand:
        silent(MASTER)(ask)
        if ask.command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            topic = (ask.command.ext or {})["topic"]
            return RemotingCommand(17) if topic.startswith("%RETRY%") else ok(ROUTE.encode())
        return ok(stats("a" if ask.address == SLAVE else "b", 4))

    found, asked = drive(consume_stats("g", "T"), answer)
    stats_of = [ask for ask in asked if ask.command.code == RequestCode.GET_CONSUME_STATS]
    assert {ask.command.ext["topic"] for ask in stats_of} == {"T"}
    assert found.lag == 12
    assert found.consume_tps == 3.0
    assert [item.queue.broker_name for item in found.queues] == ["a", "b"]


OFFSETS: dict[int, int] = {RequestCode.GET_MAX_OFFSET: 30, RequestCode.GET_MIN_OFFSET: 3}


def reset_answers(*, online: bool) -> Answers:
    def answer(ask: Ask) -> RemotingCommand:
        code = ask.command.code
        if code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return ok(ROUTE.encode())
        if code == RequestCode.GET_CONSUMER_CONNECTION_LIST:
            return ok(b"{}") if online else RemotingCommand(ResponseCode.CONSUMER_NOT_ONLINE)
        if code == RequestCode.INVOKE_BROKER_TO_RESET_OFFSET:
            name = "a" if ask.address == MASTER else "b"
            table = {MessageQueue("T", name, n): 40 for n in range(2)}
            return ok(encode({"offsetTable": table}))
        return ok(offset=OFFSETS.get(code, 9))

    return answer


def commits(asked: list[Ask]) -> list[tuple[str, str]]:
    return [
        (ask.address, (ask.command.ext or {})["commitOffset"])
        for ask in asked
        if ask.command.code == RequestCode.UPDATE_CONSUMER_OFFSET
    ]


def test_a_reset_without_consumers_sets_the_masters_offsets() -> None:
    """Each queue; a dry run sets none."""
    done, asked = drive(reset_offset("g", "T", LATEST), reset_answers(online=False))
    assert (done.told, {item.after for item in done.moved}) == (False, {30})
    assert commits(asked) == [(MASTER, "30")] * 2 + [(OTHER, "30")] * 2
    done, asked = drive(reset_offset("g", "T", EARLIEST, apply=False), reset_answers(online=False))
    assert {item.after for item in done.moved} == {3}
    assert commits(asked) == []


def test_a_reset_with_consumers_tells_them() -> None:
    """The brokers do; what they say it came to is what is shown."""
    done, asked = drive(reset_offset("g", "T", 1234), reset_answers(online=True))
    assert (done.told, {item.after for item in done.moved}) == (True, {40})
    assert commits(asked) == []


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (RemotingCommand(ResponseCode.CONSUMER_NOT_ONLINE, {}, b"{}"), False),  # left just now
        (RemotingCommand(0, {}, None), True),
    ],
)
def test_a_reset_that_no_consumer_hears_of_is_done_at_the_brokers(
    answer: RemotingCommand, told: bool
) -> None:
    """Nothing would be reset, and the operator told that it was."""

    def left(ask: Ask) -> RemotingCommand:
        is_told = ask.command.code == RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        return answer if is_told else reset_answers(online=True)(ask)

    done, asked = drive(reset_offset("g", "T", LATEST), left)
    assert (done.told, {item.after for item in done.moved}) == (told, {30})
    assert len(commits(asked)) == (0 if told else 4)


def test_a_reset_that_a_broker_cannot_tell_consumers_of_is_an_error() -> None:
    """They would go on where they are, and overwrite what was set."""

    def failing(ask: Ask) -> RemotingCommand:
        is_told = ask.command.code == RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        return RemotingCommand(1, {}, None) if is_told else reset_answers(online=True)(ask)

    with pytest.raises(BrokerRefused, match=MASTER):
        drive(reset_offset("g", "T", LATEST), failing)


class Clock:
    """
    Time that passes only when somebody sleeps.

    :ivar slept: how long, each time.
    :ivar stale: topics whose route was of no use.
    """

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        self.stale: list[str] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def sending(clock: Clock | None = None, namespace: str = "", **config: Any) -> SendAsking:
    """By default with one round of attempts, as RocketMQ."""
    clock = clock or Clock()
    config.setdefault("delivery_timeout_ms", 0)

    def route(topic: str) -> Asking[TopicRoute]:
        if topic == "Missing":
            raise NoRoute(topic, "no")
        return ROUTE
        yield

    return SendAsking(
        ClientConfig(namesrv_addr="n:1", namespace=namespace),
        ProducerConfig(**config),
        Process(4711, "10.0.0.1"),
        route,
        clock.stale.append,
        ThreadTimes(clock, clock.sleep, lambda: 1_700_000_000_000),
        Random(1),
    )


def drive_batch(
    made: SendAsking, messages: list[Message], answer: Answers, queue: MessageQueue | None = None
) -> tuple[Any, list[Ask]]:
    """As `drive`, of a batch."""
    asked: list[Ask] = []

    def deliver(send: Send) -> Any:
        result, own = drive(made.deliver(send), answer)
        asked.extend(own)
        return result

    return drive_at_once(made.in_parts(messages, queue), deliver), asked


def stored(ask: Ask) -> RemotingCommand:
    return ok(queueId=(ask.command.ext or {})["e"], queueOffset=1, msgId="P")


def test_a_send_takes_queues_in_turn() -> None:
    """One broker's failure sends the next attempt to another."""
    made = sending()
    seen = [drive(made.send(Message("T", b"x")), stored)[0].message_queue for _ in range(4)]
    assert len(set(seen)) == 4

    def half(ask: Ask) -> RemotingCommand:
        silent(MASTER)(ask)
        return stored(ask)

    for _ in range(4):
        result, asked = drive(made.send(Message("T", b"x")), half)
        assert result.message_queue.broker_name == "b"
        assert asked[-1].address == OTHER


def test_a_send_says_whom_it_tried() -> None:
    """Codes that another broker would give too end it at once; retries do not go on for ever."""
    with pytest.raises(SendFailed, match="3 attempts") as failed:
        drive(sending().send(Message("T", b"x")), refuse(ResponseCode.SYSTEM_ERROR))
    assert len(failed.value.brokers) == 3
    with pytest.raises(BrokerRefused):
        drive(sending().send(Message("T", b"x")), refuse(ResponseCode.MESSAGE_ILLEGAL))
    with pytest.raises(NoRoute):
        drive(sending(create_topic_key="Missing").send(Message("Missing", b"x")), stored)


def test_a_send_ends_when_its_time_is_over() -> None:
    """All attempts share it."""
    clock = Clock()

    def slow(ask: Ask) -> RemotingCommand:
        clock.now += ask.timeout_ms / 1000
        raise RemotingTimeout("no answer")

    with pytest.raises(SendTimeout):
        drive(sending(clock).send(Message("T", b"x")), slow)
    assert clock.now == pytest.approx(103.0)


def test_a_broker_that_restarts_costs_a_script_time_and_no_exception() -> None:
    """Rounds of attempts with longer and longer pauses, each after a look at the route."""
    clock = Clock()

    def away(ask: Ask) -> RemotingCommand:
        if clock.now < 110:
            raise RemotingConnectError("refused")
        return stored(ask)

    result, asked = drive(sending(clock, delivery_timeout_ms=60_000).send(Message("T", b"x")), away)
    assert result.send_status is SendStatus.SEND_OK
    assert clock.now < 111
    assert len(asked) == 3 * len(clock.slept) + 1
    assert clock.stale == ["T"] * len(clock.slept)
    for number, pause in enumerate(clock.slept):
        longest = min(0.1 * 2**number, 1.0)
        assert longest / 2 <= pause <= longest
    assert len(set(clock.slept)) == len(clock.slept)


def test_patience_ends_and_nothing_is_tried_again_that_will_not_change() -> None:
    clock = Clock()
    made = sending(clock, delivery_timeout_ms=5_000)
    with pytest.raises(SendTimeout, match="refused") as failed:
        drive(made.send(Message("T", b"x")), silent(MASTER, OTHER))
    assert failed.value.retriable
    assert clock.now == pytest.approx(105.0, abs=0.01)
    clock.slept.clear()
    no_access = "org.apache.rocketmq.acl.common.AclException: no"
    for answer, tries in (
        (refuse(ResponseCode.MESSAGE_ILLEGAL), 1),
        (refuse(ResponseCode.TOPIC_NOT_EXIST), 3),
        (lambda ask: RemotingCommand(ResponseCode.SYSTEM_ERROR, {}, remark=no_access), 1),
    ):
        asked: list[Ask] = []

        def answered(ask: Ask, answer: Any = answer, asked: list[Ask] = asked) -> RemotingCommand:
            asked.append(ask)
            found: RemotingCommand = answer(ask)
            return found

        with pytest.raises((BrokerRefused, SendFailed)) as refused:
            drive(made.send(Message("T", b"x")), answered)
        assert (len(asked), refused.value.retriable) == (tries, False)
    queue = MessageQueue("T", "a", 0)
    once = sending(clock, retry_chosen_queue=False)
    with pytest.raises(SendFailed):
        drive(once.send(Message("T", b"x"), queue=queue), silent(MASTER))
    assert clock.slept == []
    began = clock.now
    with pytest.raises(SendTimeout):
        drive(made.send(Message("T", b"x"), queue=queue), silent(MASTER))
    assert clock.now - began == pytest.approx(5.0, abs=0.01)


def test_a_slow_broker_is_given_twice_the_time_each_round() -> None:
    """It may store each copy."""
    clock = Clock()
    waited: list[float] = []

    def slow(ask: Ask) -> RemotingCommand:
        waited.append(ask.timeout_ms)
        clock.now += ask.timeout_ms / 1000
        raise RemotingTimeout("no answer")

    with pytest.raises(SendTimeout):
        drive(sending(clock, delivery_timeout_ms=30_000).send(Message("T", b"x")), slow)
    assert waited[:3] == [3000, 6000, 12_000]
    assert clock.now == pytest.approx(130.0, abs=0.1)


def test_a_topic_that_was_there_may_come_back_and_one_that_never_was_not() -> None:
    """A name server forgets a topic with its last broker, until that is back."""
    clock = Clock()
    there = [False]

    def route(topic: str) -> Asking[TopicRoute]:
        if clock.now < 105 and there[0]:
            raise NoRoute(topic, "its broker is gone")
        if not there[0]:
            raise NoRoute(topic, "never heard of")
        return ROUTE
        yield

    made = sending(clock, delivery_timeout_ms=60_000)
    made._route = route
    with pytest.raises(NoRoute) as missing:
        drive(made.send(Message("T", b"x")), stored)
    assert not missing.value.retriable
    assert clock.slept == []
    there[0], clock.now = True, 106
    drive(made.send(Message("T", b"x")), stored)
    clock.now = 100
    drive(made.send(Message("T", b"x")), stored)
    assert 105 <= clock.now < 107


def test_a_wrong_address_of_the_name_servers_is_said_at_once() -> None:
    clock = Clock()
    made = sending(clock, delivery_timeout_ms=60_000)
    good = made._route

    def nobody(topic: str) -> Asking[TopicRoute]:
        if clock.now < 105:
            raise NoNameServer("nobody there")
        return (yield from good(topic))

    made._route = nobody
    with pytest.raises(NoNameServer):
        drive(made.send(Message("T", b"x")), stored)
    assert clock.slept == []
    made._has_met_brokers = True
    drive(made.send(Message("T", b"x")), stored)
    assert clock.now >= 105


def test_the_callers_queue_is_tried_once() -> None:
    """Given, or selected; of another topic it is refused."""
    wanted = MessageQueue("T", "b", 1)
    result, asked = drive(sending().send(Message("T", b"x"), queue=wanted), stored)
    assert (result.message_queue, len(asked)) == (wanted, 1)
    first, _ = drive(sending().send(Message("T", b"x"), selector=select_by_hash, arg="k"), stored)
    again, _ = drive(sending().send(Message("T", b"x"), selector=select_by_hash, arg="k"), stored)
    assert first.message_queue == again.message_queue
    with pytest.raises((SendFailed, BrokerRefused)):
        drive(sending().send(Message("T", b"x"), queue=QUEUE), refuse(ResponseCode.SYSTEM_ERROR))
    with pytest.raises(IllegalMessage):
        drive(sending().send(Message("T", b"x"), queue=MessageQueue("U", "b", 1)), stored)


def test_a_batch_goes_to_the_callers_queue() -> None:
    """All of its requests; of another topic it is refused, as for a single message."""
    wanted = MessageQueue("T", "b", 1)
    messages = [Message("T", b"x" * 600) for _ in range(4)]
    results, _ = drive_batch(sending(max_batch_size=1500), messages, stored, wanted)
    assert [result.message_queue for result in results] == [wanted] * 2
    with pytest.raises(IllegalMessage):
        drive_batch(sending(), messages, stored, MessageQueue("U", "b", 1))


def test_a_batch_is_split_and_tells_what_is_stored() -> None:
    """Requests that went through are in the error of the one that did not."""
    messages = [Message("T", b"x" * 600) for _ in range(4)]
    results, asked = drive_batch(sending(max_batch_size=1500), messages, stored)
    assert len(results) == len(asked) == 2
    count = [0]

    def second_fails(ask: Ask) -> RemotingCommand:
        count[0] += 1
        return stored(ask) if count[0] == 1 else RemotingCommand(ResponseCode.MESSAGE_ILLEGAL, {})

    messages = [Message("T", b"x" * 600) for _ in range(4)]
    with pytest.raises(BatchFailed, match="the last 2 messages") as failed:
        drive_batch(sending(max_batch_size=1500), messages, second_fails)
    assert failed.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert (len(failed.value.results), failed.value.unsent) == (1, 2)


def record(offset: int, topic: str, stamp: int, text: str) -> bytes:
    here = Address(b"\x7f\0\0\1", 1)
    return encode_record(
        Record(*(101, 1, 0, 0, offset, 0, 0, 5, here, stamp, here, 0, 0, b"x", topic, text))
    )


def test_a_key_query_takes_only_what_has_the_key_in_the_order_of_storing() -> None:
    """Brokers compare hashes: other topics and keys come along."""
    body = (
        record(1, "T", 9, "KEYS\x01k other")
        + record(2, "T", 3, "KEYS\x01k")
        + record(3, "T", 4, "KEYS\x01kk")
        + record(4, "U", 5, "KEYS\x01k")
        + record(5, "T", 6, "UNIQ_KEY\x01k")
    )

    def answer(ask: Ask) -> RemotingCommand:
        return ok(body) if ask.address == MASTER else ok()

    found, asked = drive(messages_by_key(KeyQuery("T", "k", max_num=7), ROUTE), answer)
    assert [item.queue_offset for item in found] == [2, 1]
    assert (asked[0].command.ext or {}).get("maxNum") == "7"
    assert "_UNIQUE_KEY_QUERY" not in (asked[0].command.ext or {})
    found, asked = drive(messages_by_key(KeyQuery("T", "k", unique=True), ROUTE), answer)
    assert [item.queue_offset for item in found] == [5]
    assert (asked[0].command.ext or {})["_UNIQUE_KEY_QUERY"] == "true"
    refusing = RemotingCommand(ResponseCode.QUERY_NOT_FOUND, {}, body)
    assert drive(messages_by_key(KeyQuery("T", "k"), ROUTE), lambda ask: refusing)[0] == []


def test_what_a_slave_lacks_is_sent_elsewhere_only_if_wanted_and_to_the_last_attempt() -> None:
    def unsafe(ask: Ask) -> RemotingCommand:
        answer = stored(ask)
        answer.code = ResponseCode.SLAVE_NOT_AVAILABLE
        return answer

    result, asked = drive(sending().send(Message("T", b"x")), unsafe)
    assert (result.send_status.name, len(asked)) == ("SLAVE_NOT_AVAILABLE", 1)
    made = sending(retry_another_broker_when_not_store_ok=True, retry_times_when_send_failed=2)
    result, asked = drive(made.send(Message("T", b"x")), unsafe)
    assert (result.send_status.name, len(asked)) == ("SLAVE_NOT_AVAILABLE", 3)


def test_what_is_stored_stays_stored_when_a_safer_attempt_fails() -> None:
    """Later attempts take nothing back, and nobody waits for a broker to come back."""
    clock = Clock()
    made = sending(clock, retry_another_broker_when_not_store_ok=True, delivery_timeout_ms=60_000)
    count = [0]

    def unsafe_once(ask: Ask) -> RemotingCommand:
        count[0] += 1
        if count[0] > 1:
            raise RemotingConnectError("refused")
        answer = stored(ask)
        answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
        return answer

    result, asked = drive(made.send(Message("T", b"x")), unsafe_once)
    assert (result.send_status.name, len(asked)) == ("FLUSH_DISK_TIMEOUT", 3)
    assert clock.slept == []


def test_of_an_ordered_topic_a_broker_without_a_master_is_one_attempt_of_the_round() -> None:
    """Its queues stand in the route even when its master does not."""
    clock = Clock()
    made = sending(clock, delivery_timeout_ms=60_000)

    def route(topic: str) -> Asking[TopicRoute]:
        brokers = [BrokerRoute("C", "a", {1: SLAVE}), BrokerRoute("C", "b", {0: OTHER})]
        return TopicRoute(ROUTE.queues, brokers, order_conf="a:2;b:2")
        yield

    made._route = route
    for _ in range(4):
        result, _ = drive(made.send(Message("T", b"x")), stored)
        assert result.message_queue.broker_name == "b"
    assert clock.slept == []


def test_without_time_nothing_is_sent() -> None:
    clock = Clock()
    asking = sending(clock, send_msg_timeout_ms=0).send(Message("T", b"x"))
    with pytest.raises(SendTimeout):
        drive(asking, stored)


def pulled(code: int = 0, body: bytes | None = None, **more: object) -> RemotingCommand:
    places: dict[str, object] = {"nextBeginOffset": 5, "minOffset": 0, "maxOffset": 9}
    answer = ok(body, **(places | more))
    answer.code = code
    return answer


def test_a_pull_says_what_it_wants_and_holds_only_if_told_so() -> None:
    def asked(**more: Any) -> tuple[dict[str, str], int]:
        asking = pull(BrokerChoice(lambda: 0.0), {0: MASTER}, QUEUE, 3, PullTerms("g", 7, **more))
        _, (ask,) = drive(asking, lambda ask: pulled(ResponseCode.PULL_NOT_FOUND))
        return ask.command.ext or {}, ask.timeout_ms

    ext, timeout_ms = asked(selector="tag")
    assert (ext["sysFlag"], ext["expressionType"], ext["subscription"]) == ("4", "TAG", "tag")
    assert (ext["queueOffset"], ext["maxMsgNums"], ext["subVersion"]) == ("3", "7", "0")
    assert (ext["suspendTimeoutMillis"], timeout_ms) == ("0", 0)
    ext, timeout_ms = asked(selector=MessageSelector.by_sql("a > 1"), hold_ms=40)
    assert (ext["sysFlag"], ext["expressionType"]) == ("6", "SQL92")
    assert (ext["suspendTimeoutMillis"], timeout_ms) == ("40", 10_040)


def test_a_pull_that_nobody_answers_or_that_is_refused_is_an_error_and_not_an_empty_queue() -> None:
    def asking(addresses: dict[int, str]) -> Asking[Any]:
        return pull(BrokerChoice(lambda: 0.0), addresses, QUEUE, 3, PullTerms("g"))

    both = {0: MASTER, 1: SLAVE}
    with pytest.raises(MQClientError, match="no address"):
        drive(asking({}), lambda ask: pulled())
    with pytest.raises(RemotingConnectError, match=SLAVE):
        drive(asking(both), lambda ask: silent(MASTER, SLAVE)(ask) or pulled())
    with pytest.raises(BrokerRefused):
        drive(asking(both), refuse(ResponseCode.SYSTEM_ERROR))
    with pytest.raises(BrokerRefused, match="no nextBeginOffset"):
        drive(asking(both), lambda ask: RemotingCommand(0))


def test_only_what_was_found_is_decoded_and_what_a_broker_suggests_is_asked_next() -> None:
    choice = BrokerChoice(lambda: 0.0)
    both = {0: MASTER, 1: SLAVE}

    def step(answer: RemotingCommand) -> tuple[Any, str]:
        result, asked = drive(pull(choice, both, QUEUE, 3, PullTerms("g")), lambda ask: answer)
        return result, asked[0].address

    found, _ = step(pulled(0, record(3, "T", 9, ""), suggestWhichBrokerId=1))
    assert [item.queue_offset for item in found.msg_found_list] == [3]
    assert (found.next_begin_offset, found.min_offset, found.max_offset) == (5, 0, 9)
    found, address = step(pulled(ResponseCode.PULL_NOT_FOUND, b"rubbish"))
    assert (found.msg_found_list, address) == ([], SLAVE)
    assert step(pulled())[1] == MASTER


def test_an_address_answers_for_itself_again() -> None:
    choice = BrokerChoice(lambda: 0.0)
    choice.failed(MASTER)
    drive(pull(choice, {0: MASTER}, QUEUE, 3, PullTerms("g")), lambda ask: pulled())
    assert not choice.is_avoided(MASTER)


@pytest.mark.parametrize(
    ("port", "is_place"),
    [("00000000", False), ("0000FFFF", True), ("00010000", False), ("01002A9F", False)],
)
def test_a_place_has_a_port(port: str, is_place: bool) -> None:
    assert (PlaceId.parse("7F000001" + port + "0000000000001234") is not None) is is_place
    for other in ("Z" * 32, " 7F000001" + port + "000000000001234", "\u0661" * 32):
        assert PlaceId.parse(other) is None
    far = PlaceId.parse("7F000001" + "00000001" + "1200000000000034")
    assert far == ("127.0.0.1:1", 0x1200000000000034)


def test_a_message_is_asked_for_where_it_is_stored() -> None:
    place = PlaceId("b:1", 99)
    found, (ask,) = drive(message_at(place), lambda ask: ok(record(3, "T", 9, "")))
    assert (found.queue_offset, ask.address, ask.command.ext) == (3, "b:1", {"offset": "99"})
    for answer in (ok(), ok(b"")):
        with pytest.raises(BrokerRefused, match="no message"):
            drive(message_at(place), lambda ask, answer=answer: answer)


def test_a_route_without_the_broker_says_whom_it_knows() -> None:
    assert addresses_in(ROUTE, "b") == {0: OTHER}
    for route, known in ((ROUTE, "known: a, b"), (TopicRoute([], []), "known: none")):
        with pytest.raises(MQClientError, match=known):
            addresses_in(route, "zzz")


def test_what_breaks_a_rule_is_asked_of_nobody() -> None:
    for asking in (
        sending().send(Message("T", b"")),
        sending().send(Message("TBW102x y", b"x")),
        sending().in_parts([]),
        sending().in_parts([Message("T", b"x"), Message("T", b"")]),
    ):
        with pytest.raises(IllegalMessage):
            next(asking)


def test_a_topic_that_is_nowhere_borrows_a_route_and_one_that_nobody_takes_is_an_error() -> None:
    result, asked = drive(sending().send(Message("Missing", b"x")), stored)
    assert (result.message_queue.topic, len(asked)) == ("Missing", 1)
    made = sending()

    def read_only(topic: str) -> Asking[TopicRoute]:
        return TopicRoute([QueueRoute("a", 2, 2, 4)], ROUTE.brokers)
        yield

    made._route = read_only
    with pytest.raises(NoRoute, match="may only be read"):
        drive(made.send(Message("T", b"x")), stored)
    with pytest.raises(NoRoute, match="zzz has no master"):
        drive(sending().send(Message("T", b"x"), queue=MessageQueue("T", "zzz", 0)), stored)


def test_a_message_keeps_its_id_and_names_its_namespace() -> None:
    made = sending(namespace="N")
    sent = Message("T", b"x")
    drive(made.send(sent), stored)
    first = sent.unique_id
    assert (len(first), sent.properties["INSTANCE_ID"]) == (32, "N")
    drive(made.send(sent), stored)
    assert sent.unique_id == first
    again = [Message("T", b"x") for _ in range(2)]
    (result,), _ = drive_batch(made, again, stored)
    assert result.msg_id == ",".join(item.unique_id for item in again)
    with pytest.raises(BrokerRefused):
        drive_batch(made, again, refuse(ResponseCode.MESSAGE_ILLEGAL))


def test_ids_name_the_address_that_is_configured() -> None:
    """As those of a producer in a reactor."""
    config = ProducerConfig()
    settings = ClientConfig(namesrv_addr="n:1", client_ip="10.1.2.3")

    def maker(settings: ClientConfig) -> SendMaker:
        topic = PublishTopic("T", "T", 0)
        process = Process(4711, "10.0.0.1")
        return SendMaker(
            settings, config, process, Random(1), lambda _: topic, lambda: 0.0, lambda: 1
        )

    assert maker(settings).of_message(Message("T", b"x")).msg_id.startswith("0A010203")
    plain = ClientConfig(namesrv_addr="n:1")
    assert maker(plain).of_message(Message("T", b"x")).msg_id.startswith("0A000001")
