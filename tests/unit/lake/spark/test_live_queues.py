"""A cluster as queues: who is asked, and what is said when somebody is missing."""

import pickle
from typing import Any

import pytest

from rmq_ha.base.errors import CannotDecide, ProtocolViolation, RemotingConnectError, WrongUsage
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.store_format.commitlog import Record, encode_record
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import MessageQueue, TopicTable
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.route_bodies import BrokerRoute, QueueRoute, TopicRoute
from rmq_ha.base.wire.stat_bodies import TopicOffset, TopicStatsTable
from rmq_ha.client.blocking import READER_GROUP
from rmq_ha.client.lookup.asking import Ask
from rmq_ha.client.rules.errors import NoNameServer, NoRoute
from rmq_ha.lake.spark.source.live import Ends, LiveQueues, _BrokerPuller
from rmq_ha.lake.spark.source.live_reading import BrokerAway
from rmq_ha.lake.spark.source.live_routes import NameServerRoutes, OneBroker
from rmq_ha.lake.spark.source.options import parse_options
from rmq_ha.lake.spark.source.reading import QueueId

MASTER, SLAVE, OTHER = "m:1", "s:1", "o:1"


def route(*brokers: str) -> TopicRoute:
    """Two queues on each; `a` has a slave."""
    addresses = {"a": {0: MASTER, 1: SLAVE}, "b": {0: OTHER}}
    return TopicRoute(
        [QueueRoute(name, 2, 2, 6) for name in brokers],
        [BrokerRoute("c", name, addresses[name]) for name in brokers],
    )


class FakeClient:
    """Addresses that answer with their ends; the others refuse connections."""

    def __init__(self, ends: dict[str, tuple[int, int]]) -> None:
        self.ends = ends
        self.routes = {"t": route("a", "b"), "u": route("b")}
        self.asked: list[str] = []
        self.names_answer = True
        self.knows_topic = True

    def route(self, topic: str) -> TopicRoute:
        if topic not in self.routes:
            raise NoRoute(topic, "unknown")
        return self.routes[topic]

    def call(self, address: str, command: RemotingCommand) -> RemotingCommand:
        if not address:
            if not self.names_answer:
                raise NoNameServer("no name server answers")
            return RemotingCommand(0, body=fastjson.encode({"topicList": list(self.routes)}))
        if address not in self.ends:
            raise RemotingConnectError(f"{address}: refused")
        if command.code == RequestCode.GET_BROKER_CONFIG:
            return RemotingCommand(0, body=b"brokerName=z\nbrokerId=1\nother=a=b\n")
        table = TopicTable(topics={"t": TopicConfig("t", 3, 4, 6)})
        return RemotingCommand(0, body=fastjson.encode(table))

    def run(self, asking: Any) -> Any:
        ask: Ask = next(asking)
        while True:
            try:
                self.asked.append(ask.address)
                if ask.address not in self.ends:
                    ask = asking.throw(RemotingConnectError(f"{ask.address}: refused"))
                    continue
                low, high = self.ends[ask.address]
                if ask.command.code == RequestCode.GET_TOPIC_STATS_INFO:
                    ask = asking.send(self.stats(low, high))
                    continue
                if ask.command.code == RequestCode.GET_ALL_CONSUMER_OFFSET:
                    table = {"t@g": {0: low, 1: -1}, "u@g": {0: 5}, "t@other": {0: 3, 1: 3}}
                    body = fastjson.encode({"offsetTable": table})
                    ask = asking.send(RemotingCommand(0, body=body))
                    continue
                value = low if ask.command.code == RequestCode.GET_MIN_OFFSET else high
                ask = asking.send(RemotingCommand(0, {"offset": str(value)}))
            except StopIteration as end:
                return end.value

    def stats(self, low: int, high: int) -> RemotingCommand:
        """Of queue 0 alone: the other one cannot be written."""
        if not self.knows_topic:
            return RemotingCommand(17, remark="topic not exist")
        table = {MessageQueue("t", "a", 0): TopicOffset(low, high, 0)}
        return RemotingCommand(0, body=TopicStatsTable(table).encode())


def cluster(client: FakeClient, **options: str) -> LiveQueues:
    given = {"subscribe": "t", "fetchOffset.retryIntervalMs": "0", **options}
    if "brokerAddr" not in given:
        given["namesrv"] = "n:1"
    made = LiveQueues(parse_options(given))
    made._client = client  # type: ignore[assignment]
    return made


def queues(client: FakeClient, **options: str) -> list[str]:
    made = cluster(client, **options)
    return list(map(str, made.queues(made._options.subscription)))


def test_the_queues_of_all_brokers_are_found() -> None:
    client = FakeClient({})
    assert queues(client) == ["t/a/0", "t/a/1", "t/b/0", "t/b/1"]
    assert queues(client, brokerName="b") == ["t/b/0", "t/b/1"]
    made = LiveQueues(parse_options({"namesrv": "n:1", "subscribePattern": "[tu]"}))
    made._client = client  # type: ignore[assignment]
    assert len(made.queues(made._options.subscription)) == 6


def test_what_is_not_there_is_named() -> None:
    client = FakeClient({})
    with pytest.raises(CannotDecide, match="no broker has the topic gone, as far as n:1 knows"):
        queues(client, subscribe="t,gone")
    with pytest.raises(CannotDecide, match="t is not on the broker z; it is on a, b"):
        queues(client, brokerName="z")
    made = LiveQueues(parse_options({"namesrv": "n:1", "assign": '{"t":[1,7]}'}))
    made._client = client  # type: ignore[assignment]
    with pytest.raises(CannotDecide, match=r"no queue t/7 on a running broker; there are t/a/1"):
        made.queues(made._options.subscription)
    assert [str(queue) for queue in made.present(made._options.subscription)] == ["t/a/1", "t/b/1"]


def test_the_master_says_where_a_queue_ends_or_else_the_slave() -> None:
    client = FakeClient({MASTER: (3, 9), SLAVE: (4, 8)})
    made = cluster(client)
    queue = QueueId("t", "a", 0)
    assert made.ends(queue) == Ends(3, 9, True)
    del client.ends[MASTER]
    with pytest.warns(UserWarning, match="read from a slave, which has 4 to 7"):
        assert made.bounds(queue) == (4, 8)
    client.asked.clear()
    assert made.ends(queue) == Ends(4, 8, False)
    assert client.asked == [SLAVE, SLAVE], "one that refused is not asked again at once"


def test_a_topics_queues_are_asked_for_together() -> None:
    client = FakeClient({MASTER: (3, 9)})
    made = cluster(client, **{"fetchOffset.numRetries": "0"})
    first, second = QueueId("t", "a", 0), QueueId("t", "a", 1)
    assert made.all_ends([first]) == {first: Ends(3, 9, True)}
    assert client.asked == [MASTER]
    client.asked.clear()
    other = [QueueId("t", "b", number) for number in range(5)]
    assert made.all_ends([*other, first, second]) == dict.fromkeys(
        (first, second), Ends(3, 9, True)
    )
    assert client.asked == [MASTER] * 3 + [OTHER]
    client.knows_topic = False
    assert made.all_ends([first]) == {first: Ends(3, 9, True)}


def test_nobody_answers() -> None:
    client = FakeClient({})
    made = cluster(client, **{"fetchOffset.numRetries": "2"})
    with pytest.raises(BrokerAway, match=r"t/b/0 cannot be asked for its offsets: o:1: refused"):
        made.ends(QueueId("t", "b", 0))
    assert client.asked == [OTHER] * 3


def test_an_empty_queue_begins_and_ends_at_the_same_offset() -> None:
    client = FakeClient({MASTER: (-1, -1), OTHER: (5, 0)})
    assert cluster(client).ends(QueueId("t", "a", 0)) == Ends(0, 0, True)
    assert cluster(client).ends(QueueId("t", "b", 0)) == Ends(5, 5, True)


def test_topics_are_remembered_while_no_name_server_answers() -> None:
    client = FakeClient({})
    routes = NameServerRoutes()
    assert routes.topics(client) == ["t", "u"]  # type: ignore[arg-type]
    client.names_answer = False
    assert routes.topics(client) == ["t", "u"]  # type: ignore[arg-type]
    with pytest.raises(NoNameServer):
        NameServerRoutes().topics(client)  # type: ignore[arg-type]


def test_one_broker_tells_its_own_name_id_and_topics() -> None:
    client = FakeClient({MASTER: (0, 2)})
    assert queues(client, brokerAddr=MASTER) == ["t/z/0", "t/z/1", "t/z/2"]
    made = cluster(client, brokerAddr=MASTER)
    assert made.ends(QueueId("t", "z", 0)) == Ends(0, 2, False), "its id is 1: it is a slave"
    with pytest.raises(CannotDecide, match=r"topic gone, as far as m:1 knows"):
        queues(client, brokerAddr=MASTER, subscribe="gone")


def test_one_brokers_topics_are_asked_for_now_and_then() -> None:
    now = [100.0]
    client = FakeClient({MASTER: (0, 2)})
    broker = OneBroker(MASTER, lambda: now[0])
    assert broker.topics(client) == ["t"]  # type: ignore[arg-type]
    client.ends.clear()
    assert broker.topics(client) == ["t"]  # type: ignore[arg-type]
    now[0] += 60
    assert broker.topics(client) == ["t"], "it is away"  # type: ignore[arg-type]


def test_one_broker_is_asked_again_when_its_answer_is_five_seconds_old() -> None:
    now, asked = [100.0], list[int]()

    class Asked(FakeClient):
        def call(self, address: str, command: RemotingCommand) -> RemotingCommand:
            asked.append(command.code)
            return super().call(address, command)

    client, broker = Asked({}), OneBroker(MASTER, lambda: now[0])
    with pytest.raises(RemotingConnectError):
        broker.topics(client)  # type: ignore[arg-type]
    client.ends[MASTER] = (0, 2)
    assert broker.topics(client) == ["t"], "who was away is asked at once"  # type: ignore[arg-type]
    asked.clear()
    now[0] += 5
    broker.topics(client)  # type: ignore[arg-type]
    assert asked == []
    now[0] += 0.1
    broker.topics(client)  # type: ignore[arg-type]
    assert asked == [RequestCode.GET_BROKER_CONFIG, RequestCode.GET_ALL_TOPIC_CONFIG]


@pytest.mark.parametrize(
    ("said", "ids"),
    [
        (b"brokerName=z\nbrokerId=1\n", {1: MASTER}),
        (b"brokerName=z\nbrokerId=-1\n", {0: MASTER}),
        (b"brokerName=z\n", {0: MASTER}),
    ],
)
def test_one_broker_without_a_number_is_a_master(said: bytes, ids: dict[int, str]) -> None:
    class Other(FakeClient):
        def call(self, address: str, command: RemotingCommand) -> RemotingCommand:
            if command.code == RequestCode.GET_BROKER_CONFIG:
                return RemotingCommand(0, body=said)
            return super().call(address, command)

    broker = OneBroker(MASTER, lambda: 0.0)
    found = broker.route(Other({MASTER: (0, 2)}), "t")  # type: ignore[arg-type]
    assert found == TopicRoute([QueueRoute("z", 3, 4, 6)], [BrokerRoute("", "z", ids)])


def test_it_can_be_sent_to_executors_without_its_connections() -> None:
    made = cluster(FakeClient({}))
    copy = pickle.loads(pickle.dumps(made))
    assert copy._client is None
    assert copy._options == made._options


def test_options_of_tls_that_do_not_fit_are_named() -> None:
    given = {"namesrv": "n:1", "subscribe": "t", "tls.client.trustCertPath": "/nowhere/ca.pem"}
    with pytest.raises(WrongUsage, match=r"nowhere/ca.pem"):
        LiveQueues(parse_options(given)).queues(parse_options(given).subscription)


def test_a_group_goes_on_where_each_of_its_brokers_says() -> None:
    """Of a master that is away its slave is asked; a queue without an offset is left out."""
    client = FakeClient({MASTER: (7, 9), SLAVE: (6, 9), OTHER: (2, 9)})
    made = cluster(client)
    here = made.queues(made._options.subscription)
    one, other = QueueId("t", "a", 0), QueueId("t", "b", 0)
    assert made.group_offsets("g", here) == {one: 7, other: 2}
    assert made.group_offsets("nobody", here) == {}
    del client.ends[MASTER]
    assert made.group_offsets("g", here) == {one: 6, other: 2}
    client.ends.clear()
    with pytest.raises(BrokerAway):
        made.group_offsets("g", here)


def test_connections_are_closed_once_and_made_again_when_they_are_needed() -> None:
    class Counted(FakeClient):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    client = Counted({MASTER: (0, 5)})
    made = cluster(client)
    for _ in range(2):
        made.close()
    assert client.closed == 1
    assert made._client is None


@pytest.mark.parametrize(("given", "group"), [({}, READER_GROUP), ({"group": "mine"}, "mine")])
def test_when_a_message_was_stored_is_asked_for_in_the_groups_name(
    given: dict[str, str], group: str
) -> None:
    """One message at its offset, whatever its tags; -1: it is not there."""
    host = Address.parse("10.0.0.1", 1)
    record = encode_record(Record(0, 0, 0, 0, 7, 0, 0, 1, host, 99, host, 0, 0, b"", "t", ""))
    seen: list[tuple[str, RemotingCommand]] = []
    places = {"nextBeginOffset": "8", "minOffset": "0", "maxOffset": "9"}

    class Pulled(FakeClient):
        def run(self, asking: Any) -> Any:
            ask = next(asking)
            seen.append((ask.address, ask.command))
            code, body = (0, record) if len(seen) == 1 else (19, None)
            with pytest.raises(StopIteration) as end:
                asking.send(RemotingCommand(code, places, body))
            return end.value.value

    client: Any = Pulled({})
    options = parse_options({"namesrv": "n:1", "subscribe": "t", "tags": "a", **given})
    routes = cluster(client)._routes
    for where, stored, address in ((routes, 99, MASTER), ({0: "here"}, -1, "here")):
        puller = _BrokerPuller(client, options, where)
        assert puller.stored_at(QueueId("t", "a", 0), 7) == stored
        asked, command = seen[-1]
        assert asked == address
        ext = command.ext or {}
        wanted = {"consumerGroup": group, "queueOffset": "7", "maxMsgNums": "1", "topic": "t"}
        assert {name: ext[name] for name in wanted} == wanted
        assert ext["subscription"] == "*"


class Told(FakeClient):
    """Whose brokers answer what they are told to; remembers commands."""

    def __init__(self, *answers: RemotingCommand, ends: dict[str, tuple[int, int]]) -> None:
        super().__init__(ends)
        self.answers = list(answers)
        self.commands: list[tuple[str, RemotingCommand]] = []

    def run(self, asking: Any) -> Any:
        ask: Ask = next(asking)
        while True:
            try:
                self.commands.append((ask.address, ask.command))
                if ask.address in self.ends:
                    ask = asking.send(self.answers.pop(0))
                else:
                    ask = asking.throw(RemotingConnectError(f"{ask.address}: refused"))
            except StopIteration as end:
                return end.value


def table_of(*queues: tuple[int, Any, Any]) -> RemotingCommand:
    """As a broker says it: queue ids and their ends."""
    rows = ",".join(
        f'{{"brokerName":"a","queueId":{number},"topic":"t"}}:'
        f'{{"lastUpdateTimestamp":0,"maxOffset":{high},"minOffset":{low}}}'
        for number, low, high in queues
    )
    return RemotingCommand(0, body=f'{{"offsetTable":{{{rows}}}}}'.encode())


ONE, TWO = QueueId("t", "a", 0), QueueId("t", "a", 1)


def test_the_ends_of_a_topic_are_those_that_its_broker_tells_of_the_queues_asked_for() -> None:
    client = Told(table_of((1, 4, 9), (0, 7, 3), (5, 1, 2)), ends={MASTER: (0, 0)})
    assert cluster(client).ends_of_topic([ONE, TWO]) == {
        ONE: Ends(7, 7, True),  # behind the last there is nothing less than the first
        TWO: Ends(4, 9, True),
    }
    ((address, command),) = client.commands
    assert (address, command.code) == (MASTER, RequestCode.GET_TOPIC_STATS_INFO)
    assert (command.ext or {})["topic"] == "t"


def test_a_slaves_ends_are_not_sure_and_below_zero_there_is_nothing() -> None:
    client = Told(table_of((0, -1, -1), (1, 2, 5)), ends={SLAVE: (0, 0)})
    assert cluster(client).ends_of_topic([ONE, TWO]) == {
        ONE: Ends(0, 0, False),
        TWO: Ends(2, 5, False),
    }
    assert [address for address, _ in client.commands] == [MASTER, SLAVE]


def test_a_topic_that_a_broker_does_not_know_is_asked_for_queue_by_queue() -> None:
    numbers = [RemotingCommand(0, {"offset": str(value)}) for value in (3, 9)]
    client = Told(RemotingCommand(17, remark="no topic"), *numbers, ends={MASTER: (0, 0)})
    (ends,) = cluster(client).ends_of_topic([ONE]).values()
    assert sorted(ends[:2]) == [3, 9]
    assert len(client.commands) == 3
    refused = Told(RemotingCommand(1, remark="busy"), ends={MASTER: (0, 0)})
    with pytest.raises(CannotDecide, match="busy"):
        cluster(refused, **{"fetchOffset.numRetries": "0"}).ends_of_topic([ONE])


@pytest.mark.parametrize("value", ['"7"', "1.5", "true"])
@pytest.mark.parametrize("is_low", [False, True])
def test_an_end_that_is_no_number_is_no_answer(value: str, is_low: bool) -> None:
    row = (0, value, 5) if is_low else (0, 5, value)
    made = cluster(Told(table_of(row), ends={MASTER: (0, 0)}))
    name = "minOffset" if is_low else "maxOffset"
    with pytest.raises((CannotDecide, ProtocolViolation), match=f"{name} of a queue is"):
        made.ends_of_topic([ONE])


@pytest.mark.parametrize("asked", [MASTER, SLAVE])
def test_an_offset_is_kept_for_a_group_by_the_master_or_else_by_the_slave(asked: str) -> None:
    client = Told(RemotingCommand(0), ends={asked: (0, 0)})
    cluster(client).commit("g", TWO, 23)
    address, command = client.commands[-1]
    assert (address, command.code) == (asked, RequestCode.UPDATE_CONSUMER_OFFSET)
    wanted = {"consumerGroup": "g", "topic": "t", "queueId": "1", "commitOffset": "23"}
    assert {name: (command.ext or {})[name] for name in wanted} == wanted
    assert len(client.commands) == (1 if asked == MASTER else 2)


def test_an_offset_that_nobody_keeps_is_named_after_some_tries() -> None:
    client = Told(ends={})
    made = cluster(client, **{"fetchOffset.numRetries": "2"})
    why = r"t/b/0: offset 23 of the group g cannot be kept"
    with pytest.raises(BrokerAway, match=why):
        made.commit("g", QueueId("t", "b", 0), 23)
    assert [address for address, _ in client.commands] == [OTHER] * 3


def test_an_end_that_is_not_told_is_zero() -> None:
    body = b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:{"maxOffset":5}}}'
    client = Told(RemotingCommand(0, body=body), ends={MASTER: (0, 0)})
    assert cluster(client).ends_of_topic([ONE]) == {ONE: Ends(0, 5, True)}
