"""How long a slave is looked at, and what is read of a broker and of a store."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.store_files import DirectoryEntry
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import (
    GroupTable,
    MessageQueue,
    TopicTable,
    decode_delay_offsets,
    decode_offset_table,
)
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.stat_bodies import TopicOffset, TopicStatsTable
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.ops.offline.log_files import Hole
from rmq_ha.ops.offsets import model
from rmq_ha.ops.offsets.command import DurationParam
from rmq_ha.ops.offsets.live import LiveReplica
from rmq_ha.ops.offsets.model import Fact, Snapshot
from rmq_ha.ops.offsets.pairing import Pairing, predict
from rmq_ha.ops.offsets.repair import merged_delays, merged_offsets, script, steps
from rmq_ha.ops.offsets.sampling import Patience, sample
from rmq_ha.ops.offsets.store_snapshot import StoredReplica
from rmq_ha.ops.offsets.verdict import head_findings

ALL = frozenset(model.NUMBERS + model.TEXTS)


class Pair:
    """A master whose offset grows by one a second, and a slave that copies it every ten."""

    def __init__(self, *, copies: bool = True, is_resting: bool = False) -> None:
        self.ms = 5_000
        self.looks = 0
        self.copies = copies
        self.is_resting = is_resting
        self.pauses: list[float] = []

    def now_ms(self) -> int:
        return self.ms

    def pause(self, ms: float) -> None:
        self.pauses.append(ms)
        self.ms += int(ms)

    def offset(self, *, slave: bool) -> int:
        seconds = self.ms // 1000
        if not slave:
            return seconds
        return seconds // 10 * 10 if self.copies else 0

    def side(self, *, slave: bool) -> Any:
        pair = self

        class Side:
            def snapshot(self, topics: Mapping[str, int] | None = None) -> Snapshot:
                pair.looks += 1
                facts = (
                    Fact(model.OFFSET, "t", "g", 0, pair.offset(slave=slave)),
                    model.queue_fact("t", 0, 0, 1000),
                )
                place = "s" if slave else "m"
                at = pair.ms
                return Snapshot(place, None, None, None, pair.is_resting, at, at, ALL, facts)

        return Side()

    def sample(self, patience: Patience) -> Any:
        master, slave = self.side(slave=False), self.side(slave=True)
        (pairing,) = sample(master, [slave], patience, self.now_ms, self.pause)
        return pairing


def test_a_slave_is_looked_at_until_it_has_what_its_master_had_at_first() -> None:
    pair = Pair()
    pairing = pair.sample(Patience(20_000, 23_000, 1_000))
    assert pair.ms == 10_000  # its next copy
    assert pairing.is_proven
    assert predict(pairing).errors == 0
    assert predict(pairing).repeats == 0


def test_a_slave_that_copies_nothing_has_had_its_time() -> None:
    pair = Pair(copies=False)
    pairing = pair.sample(Patience(20_000, 23_000, 1_000))
    assert pair.ms == 28_000
    assert pairing.is_proven
    assert (predict(pairing).errors, predict(pairing).repeats) == (1, 28)


def test_a_short_wait_leaves_it_open() -> None:
    pair = Pair(copies=False)
    pairing = pair.sample(Patience(20_000, 2_000, 1_000))
    assert not pairing.is_proven
    assert predict(pairing).errors == 0


def test_a_quiet_pair_is_looked_at_once() -> None:
    pair = Pair()
    pair.ms = 10_000
    pair.sample(Patience())
    assert pair.pauses == []
    assert pair.looks == 3


def test_what_rests_is_not_waited_for_and_may_not_differ() -> None:
    pair = Pair(copies=False, is_resting=True)
    pairing = pair.sample(Patience())
    assert pair.pauses == []
    assert pair.looks == 2
    assert (predict(pairing).errors, predict(pairing).repeats) == (1, 5)


# A broker that runs

TOPICS = TopicTable(
    DataVersion(7, 2),
    {
        "t": TopicConfig("t", read_queue_nums=3, write_queue_nums=2),
        "TBW102": TopicConfig("TBW102", 1, 1),
    },
)
GROUPS = GroupTable(DataVersion(7, 1), {"g": SubscriptionGroupConfig("g")})


class Broker:
    """Answers as a broker does."""

    def __init__(self, configuration: str) -> None:
        self.configuration = configuration
        self.asked: list[int] = []

    def call(self, command: RemotingCommand) -> RemotingCommand:
        self.asked.append(command.code)
        ext = command.ext or {}
        if command.code == RequestCode.GET_TOPIC_STATS_INFO and ext["topic"] == "elsewhere":
            raise BrokerRefused(ResponseCode.TOPIC_NOT_EXIST, "no such topic", "b")
        if command.code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
            return RemotingCommand(0, {"offset": "4"})
        body: Any = {
            RequestCode.GET_BROKER_CONFIG: self.configuration.encode(),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: GROUPS,
            RequestCode.GET_ALL_CONSUMER_OFFSET: b'{"offsetTable":{"t@g":{0:5}}}',
            RequestCode.GET_ALL_DELAY_OFFSET: b'{"offsetTable":{3:1}}',
            RequestCode.GET_ALL_TOPIC_CONFIG: TOPICS,
            RequestCode.GET_TOPIC_STATS_INFO: TopicStatsTable(
                {MessageQueue(ext.get("topic", ""), "b", 0): TopicOffset(1, 9, 0)}
            ),
            RequestCode.GET_BROKER_RUNTIME_INFO: {
                "table": {"commitLogMinOffset": "0", "commitLogMaxOffset": "77"}
            },
        }[RequestCode(command.code)]
        return RemotingCommand(0, {}, body if isinstance(body, bytes) else fastjson.encode(body))


OURS = "brokerRole=SLAVE\nbrokerId=1\nbrokerName=b\nembeddedNamesrvPort=0\n"


def test_a_broker_is_read_over_the_wire() -> None:
    broker = Broker(OURS)
    found = LiveReplica(broker.call, "broker://b", lambda: 11).snapshot({"elsewhere": 1})
    assert (found.broker, found.broker_id, found.role) == ("b", 1, "SLAVE")
    assert found.kinds == ALL
    facts = {fact.key: fact for fact in found.facts}
    assert facts[model.FactKey("offset", "t", "g", 0)].value == 5
    assert facts[model.FactKey("delay", "SCHEDULE_TOPIC_XXXX", None, 2)].value == 1
    assert facts[model.FactKey("log")].value == 77
    assert found.bounds() == {
        ("t", 0): (1, 9),
        ("t", 1): (4, 4),
        ("t", 2): (4, 4),
        ("TBW102", 0): (1, 9),
        ("elsewhere", 0): (4, 4),
    }
    assert facts[model.FactKey("version", "topics")].text == "2 of 7"
    # No offset may seem to lie beyond an end that was read before it.
    ends = broker.asked.index(RequestCode.GET_TOPIC_STATS_INFO)
    assert broker.asked.index(RequestCode.GET_ALL_CONSUMER_OFFSET) < ends
    assert broker.asked.index(RequestCode.GET_ALL_DELAY_OFFSET) < ends


def test_the_delay_offsets_of_a_live_slave_of_java_are_not_believed() -> None:
    """It answers with those that it loaded at its start; its copies go to the disk only."""
    broker = Broker(OURS.replace("embeddedNamesrvPort=0\n", ""))
    found = LiveReplica(broker.call, "broker://b", lambda: 11).snapshot()
    assert model.DELAY not in found.kinds
    assert RequestCode.GET_ALL_DELAY_OFFSET not in broker.asked


def test_an_answer_without_a_table_is_no_empty_table() -> None:
    broker = Broker(OURS)

    def call(command: RemotingCommand) -> RemotingCommand:
        answer = broker.call(command)
        if command.code == RequestCode.GET_ALL_CONSUMER_OFFSET:
            answer.body = None
        return answer

    with pytest.raises(CannotDecide, match="broker://b answers request 43 with nothing"):
        LiveReplica(call, "broker://b", lambda: 1).snapshot()


def test_nonsense_is_said_to_be_that() -> None:
    def call(command: RemotingCommand) -> RemotingCommand:
        return RemotingCommand(0, {}, b"[]")

    with pytest.raises(CannotDecide, match="broker://b answers nonsense"):
        LiveReplica(call, "broker://b", lambda: 1).snapshot()


# A store


class Queue:
    topic, queue_id = "t", 0
    min_offset, max_offset = 2, 9
    faults: Sequence[str] = ()
    is_end_known = True

    def unit(self, offset: int) -> None:
        """Return None for each offset, because this queue has no entry."""


class Store:
    abort = False
    notes: Sequence[str] = ()
    holes: Sequence[Hole] = ()

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def config(self, name: str) -> bytes | None:
        return self._files.get(name)

    def topics_on_disk(self) -> list[tuple[str, int]]:
        return [("t", 0)]

    def queue(self, topic: str, queue_id: int) -> Any:
        return Queue()

    def bytes_at(self, offset: int, size: int) -> bytes:
        return b""

    def min_offset(self) -> int:
        return 0

    def max_offset(self) -> int:
        return 500


def stored(store: Store, *listings: int, now: int = 100_000) -> Snapshot:
    """:param listings: when a file had changed, look by look."""
    looks = iter([at for at in listings for _ in range(3)])

    def listing(_: str) -> list[DirectoryEntry]:
        return [DirectoryEntry("checkpoint", 1, False, next(looks))]

    return StoredReplica(lambda _: store, listing, "/s", lambda: now).snapshot()


def test_a_store_at_rest_is_as_old_as_its_files() -> None:
    store = Store({"consumerOffset.json": b'{"offsetTable":{"t@g":{0:5}}}'})
    found = stored(store, 70_000, 70_000)
    assert found.is_resting
    assert (found.began, found.ended) == (70_000, 70_000)
    assert found.kinds >= {model.OFFSET, model.DELAY, model.QUEUE, model.LOG}
    assert found.bounds() == {("t", 0): (2, 9)}


def test_a_store_without_a_table_has_nothing_in_it() -> None:
    """So its broker will see it: what only the other side has is missing here."""
    assert stored(Store({}), 1, 1).kinds == ALL


def test_queues_of_a_topic_that_have_no_files_are_empty() -> None:
    table = TopicTable(DataVersion(1, 1), {"t": TopicConfig("t", 2, 1)})
    store = Store({"topics.json": fastjson.pretty(table)})
    assert stored(store, 1, 1).bounds() == {("t", 0): (2, 9), ("t", 1): (0, 0)}


def test_tables_of_newer_brokers_are_read() -> None:
    store = Store(
        {
            "consumerOffset.json": b'{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1},'
            b'"offsetTable":{"t@g":{0:5},"nobody":{0:1}}}',
            "topics.json": b'{"dataVersion":{"counter":1,"stateVersion":2,"timestamp":5},'
            b'"topicConfigTable":{"t":{"attributes":{"+message.type":"NORMAL"},"perm":6}}}',
        }
    )
    found = stored(store, 1, 1)
    assert found.offsets() == {"t@g": {0: 5}}
    assert "t" in {fact.topic for fact in found.facts if fact.kind == model.TOPIC}


def test_a_store_that_changes_does_not_rest() -> None:
    assert not stored(Store({}), 70_000, 70_001).is_resting


@pytest.mark.parametrize(("at", "rests"), [(90_000, False), (60_000, True)])
def test_a_crashed_store_rests_when_nobody_has_written_for_long(at: int, rests: bool) -> None:
    store = Store({})
    store.abort = True
    assert stored(store, at, at).is_resting is rests


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("consumerOffset.json", b'{"offsetTable":{"t@g":{0:9223372036854775808}}}'),
        ("consumerOffset.json", b'{"offsetTable":{"t@g":{2147483648:1}}}'),
        ("delayOffset.json", b'{"offsetTable":{-1:1}}'),
        ("topics.json", b'{"topicConfigTable":{"t":{"readQueueNums":99999999999}}}'),
    ],
)
def test_numbers_that_no_broker_has_are_named(name: str, text: bytes) -> None:
    ((code, where),) = stored(Store({name: text}), 1, 1).faults
    assert (code, name in where) == ("TABLE_DAMAGED", True)


def test_what_is_read_in_the_place_of_a_damaged_table_is_told_once() -> None:
    store, told = Store({}), list[str]()
    store.notes = ["read topics.json.bak in its place"]
    replica = StoredReplica(lambda _: store, lambda _: [], "/s", lambda: 1, told.append)
    replica.snapshot()
    replica.snapshot()
    assert told == store.notes


def test_a_file_that_is_deleted_meanwhile_decides_nothing() -> None:
    class Moving(Store):
        def queue(self, topic: str, queue_id: int) -> Any:
            raise FileNotFoundError(2, "No such file or directory", "/s/consumequeue/t/0/0")

    with pytest.raises(CannotDecide, match=r"/s cannot be read: .*consumequeue.*try again"):
        stored(Moving({}), 1, 1)


def test_a_name_server_that_refuses_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from rmq_ha.client.blocking import BlockingClient
    from rmq_ha.client.rules.settings import ClientConfig
    from rmq_ha.ops.offsets.opening import opened
    from rmq_ha.ops.offsets.places import NamesrvPlace

    def refuse(_: object) -> None:
        raise BrokerRefused(1, "no permission", "ns:1")

    monkeypatch.setattr(BlockingClient, "cluster", refuse)
    with (
        opened(ClientConfig(), lambda: 1) as source,
        pytest.raises(CannotDecide, match=r"namesrv://ns:1/b: .*no permission"),
    ):
        source(NamesrvPlace("ns:1", "b"), is_slave=False)


def test_damage_is_named_and_the_rest_is_compared() -> None:
    """The job said "could not decide" because of one torn table."""
    store = Store({"topics.json": b'{"x', "consumerOffset.json": b'{"offsetTable":{"t@g":{0:5}}}'})
    store.holes = [Hole(10, 30, "a and b")]
    slave = stored(store, 1, 1)
    assert slave.kinds == ALL - {model.TOPIC, model.VERSION}
    assert slave.offsets() == {"t@g": {0: 5}}
    master = replace(stored(Store({}), 1, 1), place="m")
    told = {one.code: one for one in head_findings(Pairing([master], slave, True))}
    assert set(told) == {"TABLE_DAMAGED", "STORE_DAMAGED"}
    assert re.match(r"/s/config/topics\.json .*\.bak", told["TABLE_DAMAGED"].detail)
    assert told["STORE_DAMAGED"].detail.startswith("the log has no bytes from 10 to 30: ")
    assert {one.severity for one in told.values()} == {"ERROR"}
    # A hole in the master's log makes its slave no less safe; a lost table does.
    turned = head_findings(Pairing([replace(slave, place="m")], replace(master, place="s"), True))
    assert {(one.code, one.severity, one.broker) for one in turned} == {
        ("TABLE_DAMAGED", "ERROR", "m"),
        ("STORE_DAMAGED", "WARN", "m"),
    }


# The plan


def test_the_merged_tables_have_the_masters_progress_but_not_more_than_the_slave_has() -> None:
    from rmq_ha.ops.offsets.pairing import Pairing

    def side(place: str, end: int, **offsets: int) -> Snapshot:
        facts = [Fact(model.OFFSET, "t", group, 0, value) for group, value in offsets.items()]
        facts += [
            model.queue_fact("t", 0, 0, end),
            model.queue_fact("SCHEDULE_TOPIC_XXXX", 2, 0, end),
            Fact(model.DELAY, "SCHEDULE_TOPIC_XXXX", None, 2, 9),
        ]
        return Snapshot(place, None, None, None, True, 0, 0, ALL, tuple(facts))

    pairing = Pairing([side("m", 10, g=9, new=4)], side("s", 8, g=2, old=3), True)
    merged = decode_offset_table(merged_offsets(pairing))
    assert merged == {"t@g": {0: 8}, "t@new": {0: 4}, "t@old": {0: 3}}
    assert decode_delay_offsets(merged_delays(pairing)) == {3: 8}
    crashed = replace(pairing.masters[0], is_crashed=True)
    slave = side("s", 8, g=2, old=3, new=7)
    merged = decode_offset_table(merged_offsets(Pairing([crashed], slave, True)))
    # A master that crashed may have written less than its slave had copied.
    assert merged["t@new"] == {0: 7}
    text = script(steps(pairing))
    assert "# cp consumerOffset.json" in text
    assert all(line.startswith("#") or not line for line in text.splitlines())


def test_a_plan_changes_nothing_that_was_right() -> None:
    """Whatever mqadmin is not told, it sets to defaults of its own."""
    from rmq_ha.ops.offsets.pairing import Pairing

    table = TopicTable(DataVersion(1, 1), {"t": TopicConfig("t", 4, 8, perm=4, order=True)})
    group = SubscriptionGroupConfig("g", consume_enable=False, retry_max_times=3)
    facts = [*model.topic_facts(table)]
    facts += model.group_facts(GroupTable(DataVersion(1, 1), {"g": group}))
    master = Snapshot("m", "b", 0, None, True, 0, 0, ALL, tuple(facts))
    slave = Snapshot("s", "b", 1, None, True, 0, 0, ALL, ())
    commands = [step.command for step in steps(Pairing([master], slave, True))]
    assert "mqadmin updateTopic -b SLAVE_ADDRESS -t t -r 4 -w 8 -p 4 -o true" in commands
    assert (
        "mqadmin updateSubGroup -b SLAVE_ADDRESS -g g -s false -m true -d true -q 1 -r 3 -i 0 -w 1"
        " -a true"
    ) in commands
    assert steps(Pairing([master], replace(slave, broker="other"), True)) == []


@pytest.mark.parametrize(
    ("text", "ms"), [("20s", 20_000), ("500ms", 500), ("2m", 120_000), ("3", 3_000), ("0", 0)]
)
def test_spans(text: str, ms: int) -> None:
    assert DurationParam().convert(text, None, None) == ms


@pytest.mark.parametrize("text", ["", "s", "-1s", "nan", "1y"])
def test_what_is_no_span(text: str) -> None:
    import click

    with pytest.raises(click.BadParameter):
        DurationParam().convert(text, None, None)


def test_a_slave_whose_files_are_younger_than_its_masters() -> None:
    """A master writes its files every 5 s; the slave copies from its memory, and at once."""
    pair = Pair()

    def offset(*, slave: bool) -> int:
        seconds = pair.ms // 1000
        if slave:
            return seconds // 10 * 10
        return (seconds - 4) // 5 * 5 + 4

    pair.offset = offset  # type: ignore[method-assign]
    pair.ms = 10_000
    pairing = pair.sample(Patience(20_000, 23_000, 1_000))
    assert pair.ms == 14_000
    assert predict(pairing).errors == 0
