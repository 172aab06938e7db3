"""The producer against whole brokers on a fake clock: what goes wrong, and how long it takes."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from rmq_ha.base.model.message import Address
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.connection.hooks import SendContext
from rmq_ha.client.connection.parts import CheckHeader
from rmq_ha.client.lookup.requests import pull_request
from rmq_ha.client.rules.errors import (
    BatchFailed,
    BrokerRefused,
    IllegalMessage,
    MQClientError,
    NoNameServer,
    NoRoute,
    NotStarted,
    RequestTimeout,
    SendFailed,
    SendTimeout,
    TooManyInFlight,
)
from rmq_ha.client.rules.messages import (
    Message,
    MessageExt,
    MessageQueue,
    SendResult,
    SendStatus,
    decode_messages,
)
from rmq_ha.client.rules.queue_choice import select_by_hash
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.client.send.request_reply import create_reply_message
from rmq_ha.client.send.transactions import (
    CHECK_SECONDS,
    LocalTransactionState,
    TransactionProducer,
)
from tests.unit.client.sim_cluster import SimCluster

COMMIT = LocalTransactionState.COMMIT_MESSAGE
ROLLBACK = LocalTransactionState.ROLLBACK_MESSAGE
UNKNOW = LocalTransactionState.UNKNOW


class Bench:
    """A cluster of two brokers and a started producer."""

    def __init__(self, *brokers: str, client: dict[str, Any] | None = None, **config: Any) -> None:
        self.cluster = SimCluster(*(brokers or ("a", "b")))
        self.instance = self.cluster.client(**(client or {}))
        self.producer = Producer(self.instance, ProducerConfig(producer_group="PG", **config))
        self.wait(self.producer.start())
        self.cluster.clock.run_for(0.1)  # the client looks at all routes once after 10 ms

    def wait(self, later: Any, limit: float = 60.0) -> Any:
        return self.cluster.wait(later, limit)

    def send(self, body: bytes = b"hello", topic: str = "T", **options: Any) -> SendResult:
        result: SendResult = self.wait(self.producer.send(Message(topic, body), **options))
        return result

    def timed(self, later: Any) -> tuple[float, BaseException | None]:
        """How long it took, and its error."""
        before = self.cluster.clock.seconds()
        error: BaseException | None = None
        try:
            self.wait(later)
        except (MQClientError, CancelledError) as caught:
            error = caught
        return self.cluster.clock.seconds() - before, error

    def stored(self, broker: str, topic: str = "T", queue_id: int = 0) -> list[MessageExt]:
        """What a queue holds, over the client's own connection."""
        request = pull_request("CG", topic, queue_id, 0)
        asked = self.instance.invoke(self.cluster.address(broker), request, 3000)
        return decode_messages(self.wait(asked).body or b"", broker)


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    """Makes benches; none may have raised in a timer in the end."""
    made: list[Bench] = []

    def make(*brokers: str, **options: Any) -> Bench:
        made.append(Bench(*brokers, **options))
        return made[-1]

    yield make
    for item in made:
        assert not item.cluster.clock.failures


def test_queues_take_turns_over_both_brokers(bench: Callable[..., Bench]) -> None:
    """Eight sends to a new topic with four queues each reach every queue once."""
    it = bench()
    results = [it.send() for _ in range(8)]
    assert {result.message_queue for result in results} == {
        MessageQueue("T", broker, number) for broker in "ab" for number in range(4)
    }
    assert {result.send_status for result in results} == {SendStatus.SEND_OK}


def test_what_arrives(bench: Callable[..., Bench]) -> None:
    """Body, tag, keys, own properties, flag, born timestamp; a large body decompressed again."""
    it = bench("a")
    message = Message("T", b"x" * 5000, "tag", ["k1", "k2"], properties={"mine": "1"}, flag=-7)
    queue = MessageQueue("T", "a", 0)
    result = it.wait(it.producer.send(message, queue=queue))
    (found,) = it.stored("a")
    assert (found.body, found.tags, found.keys, found.flag) == (b"x" * 5000, "tag", "k1 k2", -7)
    assert found.properties["mine"] == "1"
    assert found.store_size < 1000
    assert (found.msg_id, found.offset_msg_id) == (result.msg_id, result.offset_msg_id)
    assert found.queue == result.message_queue == queue
    assert found.sys_flag == 0x300


def test_a_dead_process_costs_nothing_but_a_retry(bench: Callable[..., Bench]) -> None:
    """Refused connections: the message goes to the other broker at once."""
    it = bench()
    it.send()
    it.cluster.crash("a")
    for _ in range(8):
        seconds, error = it.timed(it.producer.send(Message("T", b"x")))
        assert error is None
        assert seconds < 0.1


def test_a_silent_broker_takes_the_whole_time(bench: Callable[..., Bench]) -> None:
    """
    As with Java's client: no answer within send_msg_timeout_ms, and no time left for another.

    A later send that finds the attempt to connect half way gets to the other broker in time.
    """
    it = bench(delivery_timeout_ms=0)
    for _ in range(8):
        it.send()
    it.cluster.crash("a", power=True)
    waits = [it.timed(it.producer.send(Message("T", b"x"))) for _ in range(8)]
    lost = [(seconds, error) for seconds, error in waits if error is not None]
    assert 1 <= len(lost) <= 4
    for seconds, error in lost:
        assert isinstance(error, SendTimeout)
        assert seconds == pytest.approx(3.0, abs=0.05)
        assert "a" in error.brokers


def test_fault_avoidance_pays_once(bench: Callable[..., Bench]) -> None:
    """With the latency table a silent broker is asked once, then left alone."""
    it = bench(send_latency_fault_enable=True)
    for _ in range(8):
        it.send()
    it.cluster.crash("a", power=True)
    waits = [it.timed(it.producer.send(Message("T", b"x"))) for _ in range(12)]
    assert sum(error is not None for _, error in waits) <= 1
    assert sum(seconds > 0.1 for seconds, _ in waits) == 1


def test_all_brokers_dead(bench: Callable[..., Bench]) -> None:
    """As RocketMQ: three attempts, and an error that says so."""
    it = bench(delivery_timeout_ms=0)
    it.send()
    it.cluster.crash("a")
    it.cluster.crash("b")
    with pytest.raises(SendFailed, match="3 attempts") as caught:
        it.send()
    assert len(caught.value.brokers) == 3
    assert caught.value.code is None


def test_a_broker_that_comes_back_is_used_again(bench: Callable[..., Bench]) -> None:
    """After its connection was lost the next sends connect anew."""
    it = bench("a", delivery_timeout_ms=0)
    it.send()
    it.cluster.crash("a")
    with pytest.raises(SendFailed):
        it.send()
    it.cluster.add("a")
    assert it.send().send_status is SendStatus.SEND_OK


def test_a_refusal_that_another_broker_might_not_share(bench: Callable[..., Bench]) -> None:
    """Code 14 of a broker whose disk is full leads to the other one; code 13 does not."""
    it = bench()
    it.send()
    it.cluster.brokers["a"].configuration.broker.reject_transaction_message = True
    results = [
        it.wait(it.producer.send(Message("T", b"x", properties={"TRAN_MSG": "true"})))
        for _ in range(8)
    ]
    assert {result.message_queue.broker_name for result in results} == {"b"}
    with pytest.raises(BrokerRefused) as caught:
        it.wait(it.producer.send(Message("T", b"x", properties={"long": "é" * 20_000})))
    assert caught.value.code == 13


def test_a_chosen_queue_is_tried_once_if_asked(bench: Callable[..., Bench]) -> None:
    """RocketMQ's way; nobody waits."""
    it = bench(retry_chosen_queue=False)
    it.send()
    it.cluster.crash("a")
    with pytest.raises(SendFailed, match="1 attempt ") as caught:
        it.send(queue=MessageQueue("T", "a", 0))
    assert caught.value.brokers == ("a",)
    with pytest.raises(IllegalMessage, match="one of U"):
        it.send(queue=MessageQueue("U", "a", 0))


def test_equal_keys_share_a_queue(bench: Callable[..., Bench]) -> None:
    """`select_by_hash`, and a selector that errs."""
    it = bench()
    queues = {it.send(selector=select_by_hash, arg="order-1").message_queue for _ in range(5)}
    assert len(queues) == 1
    with pytest.raises(IllegalMessage, match="none of the topic's queues"):
        it.send(selector=lambda queues, message, arg: MessageQueue("T", "zzz", 1))


def test_no_route(bench: Callable[..., Bench]) -> None:
    """Without automatic creation the error says what to do."""
    it = bench("a", create_topic_key="nothing-here")
    with pytest.raises(NoRoute, match="create it"):
        it.send()


def test_no_name_server_at_first(bench: Callable[..., Bench]) -> None:
    """The error names it; as soon as one answers, sends go."""
    it = bench("a", client={"namesrv_addr": "127.0.0.9:9876"})
    with pytest.raises(NoNameServer, match=r"127\.0\.0\.9:9876"):
        it.send()


def test_the_second_name_server_helps(bench: Callable[..., Bench]) -> None:
    """A dead name server costs one refused connection."""
    it = bench("a", client={"namesrv_addr": "127.0.0.9:9876;127.0.0.1:9876"})
    assert it.send().send_status is SendStatus.SEND_OK


def test_time_for_the_route_counts(bench: Callable[..., Bench]) -> None:
    """A name server that is silent: the send fails when its own time is over."""
    it = bench("a")
    it.cluster.namesrv.host.crash(power=True)
    seconds, error = it.timed(it.producer.send(Message("T", b"x"), timeout_ms=500))
    assert isinstance(error, SendTimeout)
    assert seconds == pytest.approx(0.5, abs=0.01)


def test_back_pressure_waits_in_order_then_refuses(bench: Callable[..., Bench]) -> None:
    """Two in flight, three waiting, the sixth is refused; all five arrive in order."""
    it = bench("a", max_in_flight=2, max_waiting=3)
    it.send()
    queue = MessageQueue("T", "a", 0)
    before = len(it.stored("a"))
    sends = [it.producer.send(Message("T", b"%d" % n), queue=queue) for n in range(6)]
    assert it.producer.in_flight == 2
    with pytest.raises(TooManyInFlight, match="max_in_flight"):
        it.wait(sends.pop())
    for later in sends:
        it.wait(later)
    assert [found.body for found in it.stored("a")[before:]] == [b"%d" % n for n in range(5)]
    assert it.producer.in_flight == 0


def test_who_waits_for_a_place_times_out(bench: Callable[..., Bench]) -> None:
    """The deadline runs while a send waits for its place, too; places do not leak."""
    it = bench("a", max_in_flight=1)
    it.send()
    it.cluster.crash("a", power=True)
    first = it.producer.send(Message("T", b"1"), timeout_ms=2000)
    second = it.producer.send(Message("T", b"2"), timeout_ms=300)
    seconds, error = it.timed(second)
    assert isinstance(error, SendTimeout)
    assert "no place" in str(error)
    assert seconds == pytest.approx(0.3, abs=0.02)
    seconds, error = it.timed(first)
    assert isinstance(error, SendTimeout)
    assert it.producer.in_flight == 0


def test_bytes_are_bounded_too(bench: Callable[..., Bench]) -> None:
    """A message larger than all bytes goes alone."""
    it = bench("a", max_in_flight_bytes=1000, compress_msg_body_over_howmuch=1 << 30)
    sends = [it.producer.send(Message("T", b"x" * 600)) for _ in range(4)]
    assert it.producer.in_flight == 1
    sends.append(it.producer.send(Message("T", b"x" * 2000)))
    for later in sends:
        it.wait(later)


def test_cancel(bench: Callable[..., Bench]) -> None:
    """Nobody waits for a cancelled send; its place is free when its broker's time is over."""
    it = bench("a", max_in_flight=1)
    it.send()
    it.cluster.crash("a", power=True)
    flying = it.producer.send(Message("T", b"1"))
    waiting = it.producer.send(Message("T", b"2"))
    for later in (waiting, flying):
        later.cancel()
        with pytest.raises(CancelledError):
            it.wait(later)
    assert it.producer.in_flight == 1  # the broker may have it
    it.cluster.run(4)
    assert it.producer.in_flight == 0


def test_stop_waits_for_answers(bench: Callable[..., Bench]) -> None:
    """What is in flight when `stop` is called is finished, and the group is left."""
    it = bench("a")
    it.send()
    sends = [it.producer.send(Message("T", b"x")) for _ in range(20)]
    it.wait(it.producer.stop())
    assert all(it.wait(later).send_status is SendStatus.SEND_OK for later in sends)
    it.cluster.run(0.1)
    producers = it.cluster.brokers["a"].producers
    assert not producers.clients("PG")
    assert not it.instance.is_running
    with pytest.raises(NotStarted):
        it.send()


def test_stop_has_a_deadline(bench: Callable[..., Bench]) -> None:
    """A silent broker holds it up for `stop_timeout_ms`, and no longer."""
    it = bench("a", stop_timeout_ms=1000, send_msg_timeout_ms=60_000, max_in_flight=2)
    it.send()
    it.cluster.crash("a", power=True)
    sends = [it.producer.send(Message("T", b"x")) for _ in range(4)]
    failures: list[Any] = []
    for later in sends:
        later.addErrback(failures.append)
    seconds, error = it.timed(it.producer.stop())
    assert error is None
    # Leaving the group costs mq_client_api_timeout_ms more: the broker answers nothing.
    assert seconds == pytest.approx(1.0 + 3.0, abs=0.5)
    assert len(failures) == 4
    assert all(isinstance(failure.value, SendFailed) for failure in failures)


def test_oneway(bench: Callable[..., Bench]) -> None:
    """It arrives; nobody waits for an answer. A dead broker is noticed when connecting."""
    it = bench("a")
    queue = MessageQueue("T", "a", 0)
    it.wait(it.producer.send_oneway(Message("T", b"1"), queue=queue))
    it.wait(it.producer.send_oneway(Message("T", b"2"), queue=queue))
    it.cluster.run(0.1)
    assert [found.body for found in it.stored("a")] == [b"1", b"2"]
    it.cluster.crash("a")
    it.cluster.run(0.1)
    with pytest.raises(SendFailed):
        it.wait(it.producer.send_oneway(Message("T", b"3")))
    assert it.producer.in_flight == 0
    later = it.producer.send_oneway(Message("T", b""))  # whoever waits for it is told
    with pytest.raises(IllegalMessage, match="empty"):
        it.wait(later)
    with pytest.raises(IllegalMessage, match="group"):
        Producer(it.instance, ProducerConfig(producer_group="a b"))


def test_oneway_to_a_broker_that_does_not_read(bench: Callable[..., Bench]) -> None:
    """What it does not take is not buffered without end: sends wait, time out, or go on later."""
    limits = {"max_in_flight": 8, "delivery_timeout_ms": 3_000}
    it = bench("a", compress_msg_body_over_howmuch=1 << 30, **limits)
    it.send()
    ends = [channel._transport for channel in it.cluster.brokers["a"].main_server.channels]
    for end in ends:
        end.pauseProducing()
    queue = MessageQueue("T", "a", 0)
    sends = [
        it.producer.send_oneway(Message("T", b"%06d" % n * 200), queue=queue) for n in range(400)
    ]
    it.cluster.run(1)
    assert it.producer.in_flight == 8
    address = it.cluster.address("a")
    channel = it.instance.open_channel(address)
    assert channel is not None
    assert channel._transport._out_size < 150_000  # type: ignore[attr-defined]
    for end in ends:
        end.resumeProducing()
    for later in sends:
        it.wait(later)
    it.cluster.run(1)
    assert it.cluster.brokers["a"].store.max_offset_in_queue("T", 0) >= 400
    for end in ends:
        end.pauseProducing()
    late = [it.producer.send_oneway(Message("T", b"x" * 1200), queue=queue) for _ in range(400)]
    failures: list[Any] = []
    for later in late:
        later.addErrback(failures.append)
    it.cluster.run(5)
    assert failures
    assert {type(failure.value) for failure in failures} == {SendTimeout}
    for end in ends:
        end.resumeProducing()
    it.cluster.run(5)
    assert it.producer.in_flight == 0


def test_a_topic_that_was_deleted_at_one_broker(bench: Callable[..., Bench]) -> None:
    """As `mqadmin` with a broker's address deletes it: the route has the other broker only."""
    it = bench("a", "b")
    for broker in it.cluster.brokers.values():
        broker.topics.update(TopicConfig("T", 4, 4))
    it.cluster.run(31)
    route = it.cluster.namesrv.namesrv.routes.route("T")
    assert {queue.broker_name for queue in route.queues} == {"a", "b"}
    command = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert it.wait(it.instance.invoke(it.cluster.address("a"), command, 3000)).code == 0
    it.cluster.run(31)
    route = it.cluster.namesrv.namesrv.routes.route("T")
    assert {queue.broker_name for queue in route.queues} == {"b"}


def test_properties_that_only_rocketmq_5_acts_on_are_not_sent(bench: Callable[..., Bench]) -> None:
    """The producer asks for it; then the broker says the same, unless its key brings 4.9's way."""
    prior, later = {"_SYS_MSG_PRIORITY_": "3"}, {"TIMER_DELAY_SEC": "3600"}
    it = bench("a")
    for send in (
        lambda: it.producer.send(Message("T", b"x", properties=prior)),
        lambda: it.producer.send_oneway(Message("T", b"x", properties=prior)),
        lambda: it.producer.send_batch([Message("T", b"x"), Message("T", b"x", properties=prior)]),
    ):
        with pytest.raises(IllegalMessage, match="_SYS_MSG_PRIORITY_ asks for a priority"):
            it.wait(send())
    asked = Producer(
        it.instance, ProducerConfig(producer_group="PG5", refuse_unserved_properties=False)
    )
    it.wait(asked.start())
    with pytest.raises(BrokerRefused, match="refuseUnservedProperties=false"):
        it.wait(asked.send(Message("T", b"x", properties=prior)))
    with pytest.raises(SendFailed, match="refuseUnservedProperties=false"):
        it.wait(asked.send(Message("T", b"x", properties=later)))
    assert it.stored("a") == []
    it.cluster.brokers["a"].configuration.ours.refuse_unserved_properties = False
    queue = MessageQueue("T", "a", 0)
    for properties in (prior, later):
        it.wait(asked.send(Message("T", b"x", properties=properties), queue=queue))
    assert [message.body for message in it.stored("a")] == [b"x", b"x"]


def test_messages_that_do_not_go_together_are_not_sent(bench: Callable[..., Bench]) -> None:
    it = bench("a")
    with pytest.raises(IllegalMessage, match="one topic, not T and U"):
        it.wait(it.producer.send_batch([Message("T", b"x"), Message("U", b"x")]))
    with pytest.raises(IllegalMessage, match="without messages"):
        it.wait(it.producer.send_batch([]))
    assert it.stored("a") == []


def test_batch_is_split(bench: Callable[..., Bench]) -> None:
    """Ten messages of 1000 bytes in requests of 3 KiB: five requests, all messages in order."""
    it = bench("a", max_batch_size=3072)
    queue = MessageQueue("T", "a", 0)
    messages = [Message("T", b"%d" % n * 1000) for n in range(10)]
    results = it.wait(it.producer.send_batch(messages, queue=queue))
    assert [len(result.msg_id.split(",")) for result in results] == [2] * 5
    found = it.stored("a")
    assert [item.body for item in found] == [message.body for message in messages]
    assert [item.msg_id for item in found] == [message.unique_id for message in messages]


def test_batch_that_fails_half_way(bench: Callable[..., Bench]) -> None:
    """The error says what is stored."""
    it = bench("a", max_batch_size=3072)
    queue = MessageQueue("T", "a", 0)
    messages = [Message("T", b"%d" % n * 1000) for n in range(10)]
    later = it.producer.send_batch(messages, queue=queue)
    store = it.cluster.brokers["a"].store

    def two_parts() -> bool:
        return bool(store.max_offset_in_queue("T", 0) < 4)

    it.cluster.clock.run_while(two_parts, 10)
    it.cluster.crash("a")
    with pytest.raises(BatchFailed) as caught:
        it.wait(later)
    assert 1 <= len(caught.value.results) < 5
    assert caught.value.unsent == 10 - 2 * len(caught.value.results)


def test_illegal_messages(bench: Callable[..., Bench]) -> None:
    """Refused before anybody is asked, with the reason."""
    it = bench("a", max_message_size=100)
    for message, reason in (
        (Message("T", b""), "empty"),
        (Message("T", b"x" * 101), "at most 100"),
        (Message("T", "text"), "encode it"),  # type: ignore[arg-type]
        (Message("a b", b"x"), "characters"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "brokers only"),
        (Message("T", b"x", properties={"a": ""}), "empty value"),
    ):
        with pytest.raises(IllegalMessage, match=reason):
            it.wait(it.producer.send(message))


def test_not_started() -> None:
    """A producer that nobody started says so, and a group can be there once only."""
    cluster = SimCluster("a")
    instance = cluster.client()
    producer = Producer(instance)
    with pytest.raises(NotStarted, match="start"):
        cluster.wait(producer.send(Message("T", b"x")))
    cluster.wait(producer.start())
    with pytest.raises(MQClientError, match="already"):
        cluster.wait(Producer(instance).start())


def test_a_stop_before_the_start_or_again_changes_nothing() -> None:
    """Of a client that others share, too: it is not stopped by who never was in it."""
    cluster = SimCluster("a")
    instance = cluster.client()
    producer = Producer(instance)
    cluster.wait(producer.stop())
    for _ in range(2):
        cluster.wait(producer.start())
    assert cluster.wait(producer.send(Message("T", b"x"))).queue_offset == 0
    stops = [Deferred.fromCoroutine(producer.stop()) for _ in range(2)]
    for stop in stops:
        cluster.wait(stop)
    cluster.wait(producer.stop())
    assert not instance.is_running
    with pytest.raises(NotStarted, match="stopped"):
        cluster.wait(producer.start())


def test_namespace(bench: Callable[..., Bench]) -> None:
    """Brokers see it, applications do not."""
    it = bench("a", client={"namespace": "ns"})
    result = it.send()
    assert result.message_queue.topic == "T"
    found = it.stored("a", "ns%T", result.message_queue.queue_id)
    assert found[0].properties["INSTANCE_ID"] == "ns"
    assert "ns%PG" in it.instance.producers


def test_a_new_queue_count_is_seen(bench: Callable[..., Bench]) -> None:
    """After the next look at the routes, sends use the queues that were added."""
    it = bench("a")
    it.send()
    topics = it.cluster.brokers["a"].topics
    it.wait(topics.update(TopicConfig("T", 6, 6)))
    it.cluster.run(65)
    assert {it.send().message_queue.queue_id for _ in range(6)} == set(range(6))


def test_hooks_see_every_attempt(bench: Callable[..., Bench]) -> None:
    """Before and after, with result or error; what one raises before ends the send."""
    seen: list[tuple[str, str, bool]] = []

    class Hook:
        def before_send(self, context: SendContext) -> None:
            if context.messages[0].tags == "bad":
                raise ValueError("not this one")
            seen.append(("before", context.queue.broker_name, context.result is None))

        def after_send(self, context: SendContext) -> None:
            seen.append(("after", context.queue.broker_name, context.error is None))

    it = bench()
    producer = Producer(it.instance, ProducerConfig(producer_group="hooked"), [Hook()])
    it.wait(producer.start())
    it.wait(producer.send(Message("T", b"x")))
    assert [kind for kind, _, _ in seen] == ["before", "after"]
    it.cluster.crash("a")
    for _ in range(8):
        it.wait(producer.send(Message("T", b"x")))
    assert ("after", "a", False) in seen
    with pytest.raises(ValueError, match="not this one"):
        it.wait(producer.send(Message("T", b"x", "bad")))


class Listener:
    """Says what it is told to say, and notes what it is asked."""

    def __init__(self) -> None:
        self.executed: Any = COMMIT
        self.checked: Any = COMMIT
        self.questions: list[str] = []

    def execute_local_transaction(self, message: Message, arg: Any) -> Any:
        if isinstance(self.executed, Exception):
            raise self.executed
        return self.executed

    async def check_local_transaction(self, message: MessageExt) -> Any:
        self.questions.append(message.msg_id)
        return self.checked


@pytest.fixture
def transactions() -> Iterator[tuple[SimCluster, TransactionProducer, Listener]]:
    """A broker that asks early, and a transaction producer."""
    cluster = SimCluster()
    cluster.add("a", broker={"transaction_time_out": 1000, "transaction_check_interval": 1000})
    listener = Listener()
    producer = TransactionProducer(cluster.client(), listener, ProducerConfig(producer_group="PG"))
    cluster.wait(producer.start())
    yield cluster, producer, listener
    assert not cluster.clock.failures


def visible(cluster: SimCluster, topic: str = "T") -> int:
    store = cluster.brokers["a"].store
    return sum(max(0, store.max_offset_in_queue(topic, number)) for number in range(4))


@pytest.mark.parametrize(
    ("executed", "checked", "count", "questions"),
    [
        (COMMIT, COMMIT, 1, 0),
        (ROLLBACK, COMMIT, 0, 0),
        (UNKNOW, COMMIT, 1, 1),
        (UNKNOW, ROLLBACK, 0, 1),
        (ValueError("local"), COMMIT, 1, 1),
        (None, COMMIT, 1, 1),
        (Deferred, COMMIT, 1, 0),
    ],
)
def test_transactions(
    transactions: tuple[SimCluster, TransactionProducer, Listener],
    executed: Any,
    checked: Any,
    count: int,
    questions: int,
) -> None:
    """Ended at once, or asked about; whatever the listener returns or raises."""
    cluster, producer, listener = transactions
    if executed is Deferred:
        executed = Deferred()
        cluster.clock.call_at(cluster.clock.seconds() + 0.5, executed.callback, COMMIT)
    listener.executed, listener.checked = executed, checked
    result = cluster.wait(producer.send_in_transaction(Message("T", b"x", delay_time_level=5)))
    assert (result.error is not None) == (executed is None or isinstance(executed, Exception))
    cluster.run(10)
    assert visible(cluster) == count
    assert len(listener.questions) == questions
    assert set(listener.questions) <= {result.send_result.msg_id}


@pytest.mark.parametrize(
    ("properties", "msg_id", "group"),
    [
        ({}, "AT", "PG"),
        ({"UNIQ_KEY": "K", "PGROUP": "OTHER"}, "K", "OTHER"),
        ({"UNIQ_KEY": ""}, "AT", "PG"),
    ],
)
def test_an_answer_names_the_message_as_its_producer_did(
    transactions: tuple[SimCluster, TransactionProducer, Listener],
    properties: dict[str, str],
    msg_id: str,
    group: str,
) -> None:
    """And by where it is stored if that producer gave it no name."""
    _, producer, listener = transactions
    listener.checked = ROLLBACK
    here = Address.parse("10.0.0.1", 1)
    message = MessageExt("T", b"x", properties, "a", 0, 3, "AT", "AT", 77, 1, here, 2, here, 100)
    answers: list[Any] = []
    header = CheckHeader(5, 77, "AT", "tx", "AT", "10.0.0.1:10911")
    producer.check_transaction(message, header, answers.append)
    (answer,) = answers
    assert (answer.ext["msgId"], answer.ext["producerGroup"]) == (msg_id, group)
    assert (answer.ext["tranStateTableOffset"], answer.ext["commitLogOffset"]) == ("5", "77")


def test_a_check_that_hangs_is_given_up_in_time(
    transactions: tuple[SimCluster, TransactionProducer, Listener],
) -> None:
    """Else the places for questions would be gone one day; a stop waits for none."""
    cluster, producer, listener = transactions
    listener.executed = UNKNOW
    hanging: list[Deferred[Any]] = []

    def check(message: MessageExt) -> Deferred[Any]:
        hanging.append(Deferred())
        return hanging[-1]

    listener.check_local_transaction = check  # type: ignore[assignment]
    cluster.wait(producer.send_in_transaction(Message("T", b"x")))
    cluster.run(10)
    asked = len(hanging)
    assert asked >= 1
    assert len(producer._checks) == asked
    cluster.brokers["a"].configuration.broker.transaction_check_max = 0
    cluster.run(CHECK_SECONDS)
    assert hanging[0].called
    assert len(producer._checks) == len([each for each in hanging if not each.called])
    cluster.wait(producer.stop())
    assert not producer._checks
    assert not cluster.hosts["client"].clock.getDelayedCalls()


def test_request_and_reply(bench: Callable[..., Bench]) -> None:
    """The reply finds the client that asked; one that nobody answers times out."""
    it = bench("a")
    replier = Producer(it.cluster.client("other"), ProducerConfig(producer_group="RG"))
    it.wait(replier.start())
    queue = MessageQueue("T", "a", 0)
    asked = it.producer.request(Message("T", b"question"), 5000, queue=queue)
    it.cluster.run(0.2)
    (request,) = it.stored("a")
    it.wait(replier.send(create_reply_message(request, b"answer" * 1000)))
    reply = it.wait(asked)
    assert reply.body == b"answer" * 1000
    second = Producer(it.producer.instance, ProducerConfig(producer_group="PG2"))
    it.wait(second.start())
    asked = second.request(Message("T", b"of another group of this client"), 5000, queue=queue)
    it.cluster.run(0.2)
    it.wait(replier.send(create_reply_message(it.stored("a")[-1], b"to it")))
    assert it.wait(asked).body == b"to it"
    seconds, error = it.timed(it.producer.request(Message("T", b"anyone?"), 700))
    assert isinstance(error, RequestTimeout)
    assert seconds == pytest.approx(0.7, abs=0.01)
    with pytest.raises(IllegalMessage, match="no request"):
        create_reply_message(reply, b"x")
