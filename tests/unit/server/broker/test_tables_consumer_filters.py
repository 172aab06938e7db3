"""Which SQL92 expressions are known, since when, and for how long."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.errors import InvalidSelector, ProtocolViolation
from rmq_ha.base.filter.bloom import BloomFilterData
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.server.broker.tables.consumer_filters import ENTRY_SIZE, ConsumerFilterManager
from rmq_ha.testing.disk import SimDisk
from rmq_ha.testing.worker import AtOnce

PATH = "/c/consumerFilter.json"
DATA = Path(__file__).parent / "data" / "config" / "consumerFilter.json"
DAY_MS = 86_400_000


class Fixture:
    def __init__(self, disk: SimDisk | None = None, **options: Any) -> None:
        self.now = 1_000_000
        self.disk = disk or SimDisk(Random(1), lambda: 0)
        self.config = BrokerConfig()
        self.table = ConsumerFilterManager(
            self.disk, AtOnce(), PATH, self.config, lambda: self.now, **options
        )

    def register(self, group: str, *wanted: tuple[str, str, int], kind: str = "SQL92") -> None:
        self.now += 1
        self.table.register(
            group,
            [
                SubscriptionData(topic, text, sub_version=version, expression_type=kind)
                for topic, text, version in wanted
            ],
        )

    def expression(self, topic: str = "T", group: str = "G") -> str | None:
        data = self.table.get(topic, group)
        return data and data.expression


def test_a_heartbeat_registers_what_is_not_by_tags() -> None:
    it = Fixture()
    tags = SubscriptionData("B", "b", expression_type="")
    it.table.register("G", [SubscriptionData("A", "*"), tags])
    it.register("G", ("T", "a = 1", 5), ("%RETRY%G", "", 5))
    data = it.table.get("T", "G")
    assert data is not None
    assert data.selector is not None
    assert data.selector.matches({"a": "1"})
    assert (data.born_ms, data.dead_ms, data.client_version) == (it.now, 0, 5)
    assert data.bloom == it.table.bloom_filter.generate("G#T")
    assert [item.group for item in it.table.of_topic("T")] == ["G"]
    assert list(it.table.of_topic("A")) == []
    assert it.table.get("A", "G") is None


def test_only_a_newer_version_counts() -> None:
    it = Fixture()
    it.register("G", ("T", "a = 1", 5))
    first = it.table.get("T", "G")
    it.register("G", ("T", "a = 2", 5))
    it.register("G", ("T", "a = 3", 4))
    assert it.table.get("T", "G") is first
    it.register("G", ("T", "a = 1", 6))
    assert it.table.get("T", "G") is first
    assert first is not None
    assert first.client_version == 6
    it.register("G", ("T", "a = 4", 7))
    assert it.expression() == "a = 4"
    assert it.table.get("T", "G") is not first


def test_a_wrong_expression_takes_the_old_one_away() -> None:
    it = Fixture()
    it.register("G", ("T", "a =", 1))
    assert it.expression() is None
    it.register("G", ("T", "a = 1", 2))
    it.register("G", ("T", "a =", 3))
    assert it.expression() is None
    it.register("G", ("T", "a = 1", 4), kind="FOO")
    assert it.expression() is None


def test_what_a_heartbeat_no_longer_names_dies_and_may_come_back() -> None:
    it = Fixture()
    it.register("G", ("T", "a = 1", 5), ("U", "a = 1", 5))
    it.register("other", ("T", "a = 1", 5))
    it.register("G", ("U", "a = 1", 5))
    data = it.table.get("T", "G")
    assert data is not None
    assert (data.is_dead, data.dead_ms) == (True, it.now)
    it.register("G", ("T", "a = 1", 4), ("U", "a = 1", 5))
    assert data.is_dead
    it.register("G", ("T", "a = 1", 5), ("U", "a = 1", 5))
    assert (data.is_dead, data.dead_ms) == (False, 0)
    it.table.unregister("G")
    assert [item.is_dead for item in it.table.of_topic("T")] == [True, False]
    assert [item.is_dead for item in it.table.of_topic("U")] == [True]
    died = data.dead_ms
    it.now += 5
    it.table.unregister("G")
    assert data.dead_ms == died
    it.register("G", ("T", "a = 1", 6), ("U", "a = 1", 5))
    assert (data.is_dead, data.client_version) == (False, 6)
    it.table.unregister("nobody")


def test_each_change_of_a_life_reaches_the_file() -> None:
    """When a filter died counts from then on, in the next life of the broker too."""
    it = Fixture()
    for change in (
        lambda: it.register("G", ("T", "a = 1", 5)),
        lambda: it.table.unregister("G"),
        lambda: it.register("G", ("T", "a = 1", 5)),
        lambda: it.register("G", ("T", "a = 1", 6)),
        lambda: it.register("G", ("T", "a = 2", 7)),
        lambda: it.register("G", ("T", "a =", 8)),
    ):
        change()
        assert it.table.is_dirty
        it.table.persist_if_dirty()
        assert it.disk.read_bytes(PATH) == it.table.encode()
        assert not it.table.is_dirty
        it.table.unregister("nobody")
        assert not it.table.is_dirty


def test_what_is_forgotten_leaves_its_room_to_others() -> None:
    it = Fixture(capacity=2 * (ENTRY_SIZE + 5))
    for version in range(1, 6):
        it.register("G", ("T", f"a = {version}", version))
        assert it.expression() == f"a = {version}"


def test_the_dead_are_forgotten_after_a_day() -> None:
    it = Fixture()
    it.register("G", ("T", "a = 1", 5))
    it.register("H", ("T", "a = 1", 5))
    it.table.unregister("G")
    it.now += DAY_MS - 1
    it.table.clean()
    assert it.expression() == "a = 1"
    it.now += 1
    it.table.clean()
    assert it.expression() is None
    assert it.expression(group="H") == "a = 1"
    it.table.unregister("H")
    it.config.filter_data_clean_time_span = 0
    it.table.clean()
    assert json.loads(it.table.encode()) == {"filterDataByTopic": {}}


def test_memory_is_bounded_and_the_dead_go_first() -> None:
    it = Fixture(capacity=3 * (ENTRY_SIZE + 5))
    for group in ("A", "B", "C"):
        it.register(group, ("T", "a = 1", 1))
    it.register("D", ("T", "a = 1", 1))
    assert it.expression(group="D") is None
    it.now += 1
    it.table.unregister("B")
    it.now += 1
    it.table.unregister("A")
    it.register("D", ("T", "a = 1", 1))
    assert [item.group for item in it.table.of_topic("T")] == ["A", "C", "D"]
    it.register("E", ("T", "a = '" + "x" * 600 + "'", 1))
    assert it.expression(group="E") is None


def test_what_was_loaded_takes_its_room_and_no_more() -> None:
    it = Fixture()
    for group in ("A", "B"):
        it.register(group, ("T", "a = 1", 1))
    after = Fixture(capacity=3 * (ENTRY_SIZE + 5))
    for _ in range(2):
        after.table.decode(it.table.encode())
    after.now += DAY_MS
    for groups in ("ABC", "BCD"):
        after.register(groups[-1], ("T", "a = 1", 1))
        assert "".join(item.group for item in after.table.of_topic("T")) == groups


def test_the_file_is_what_java_writes() -> None:
    it = Fixture()
    it.table.decode(DATA.read_bytes())
    assert it.expression("TopicA", "CG_fixture_sql") == "a IS NOT NULL AND a > 50"
    assert it.table.encode() == DATA.read_bytes()
    assert Fixture().table.encode() == b'{\n\t"filterDataByTopic":{}\n}'


def test_who_lived_when_the_file_was_written_is_dead_at_first() -> None:
    one = Fixture()
    one.register("G", ("T", "a = 1", 5))
    one.register("old", ("T", "a = 1", 5))
    one.table.unregister("old")
    born = one.now - 1
    one.table.persist_if_dirty()
    assert not one.table.is_dirty
    two = Fixture(one.disk)
    two.now = born + 100_000
    two.table.load()
    data = two.table.get("T", "G")
    assert data is not None
    assert (data.is_dead, data.dead_ms, data.born_ms) == (True, born + 70_000, born)
    assert data.selector is not None
    two.register("G", ("T", "a = 1", 5))
    assert not data.is_dead
    three = Fixture(one.disk)
    three.now = born + 5
    three.table.load()
    again = three.table.get("T", "G")
    assert again is not None
    assert again.dead_ms == born


def test_all_that_a_file_names_is_known_again() -> None:
    one, two = Fixture(), Fixture()
    one.register("G", ("T", "a = 1", 1), ("U", "b = 2", 1))
    one.register("H", ("T", "c = 3", 1))
    two.table.decode(one.table.encode())
    places = [("T", "G"), ("U", "G"), ("T", "H")]
    assert [two.expression(*place) for place in places] == ["a = 1", "b = 2", "c = 3"]


def test_a_file_without_versions_gives_way_to_any_heartbeat() -> None:
    """What a client says first is newer."""
    one, two = Fixture(), Fixture()
    one.register("G", ("T", "a = 1", 5))
    file = json.loads(one.table.encode())
    del file["filterDataByTopic"]["T"]["groupFilterData"]["G"]["clientVersion"]
    two.table.decode(json.dumps(file).encode())
    two.register("G", ("T", "b = 2", 1))
    assert two.expression("T", "G") == "b = 2"


def test_a_file_for_another_bloom_filter_is_ignored_as_a_whole() -> None:
    one = Fixture()
    one.register("G", ("T", "a = 1", 5))
    one.register("F", ("T", "b = 1", 5))
    text = one.table.encode()
    for changed in (
        text.replace(b'"bitNum":112', b'"bitNum":120'),
        text.replace(b'"bitNum":112', b'"bitNum":120', 1),
        text.replace(b'"bitPos":[', b'"bitPos":[5,'),
    ):
        two = Fixture()
        two.register("H", ("U", "a = 1", 5))
        two.table.decode(changed)
        assert two.table.get("T", "G") is two.table.get("T", "F") is None
        assert two.table.get("U", "H") is not None


def test_an_expression_of_a_file_that_does_not_compile_lets_everything_pass() -> None:
    one = Fixture()
    one.register("G", ("T", "a = 1", 5))
    two = Fixture()
    two.table.decode(one.table.encode().replace(b"a = 1", b"a = "))
    data = two.table.get("T", "G")
    assert data is not None
    assert data.selector is None
    assert data.bloom == BloomFilterData(112, one.table.bloom_filter.generate("G#T").positions)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"filterDataByTopic":[1]}',
             '{"filterDataByTopic":{"T":{"groupFilterData":{"G":7}}}}',
             '{"filterDataByTopic":{"T":{"groupFilterData":{"G":{"bornTime":"x"}}}}}'],
)  # fmt: skip
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(ProtocolViolation):
        Fixture().table.decode(text.encode())


def test_compile_names_the_type_that_there_is_not() -> None:
    with pytest.raises(InvalidSelector, match="FOO"):
        Fixture().table.compile("FOO", "a = 1")
    with pytest.raises(InvalidSelector):
        Fixture().table.compile("SQL92", None)


def test_as_many_of_the_dead_go_as_it_takes() -> None:
    it = Fixture(capacity=3 * (ENTRY_SIZE + 5))
    for group in ("A", "B", "C"):
        it.register(group, ("T", "a = 1", 1))
    for group in ("A", "B"):
        it.now += 1
        it.table.unregister(group)
    it.register("D", ("T", "a = 10", 1))  # one character more than A leaves
    assert [item.group for item in it.table.of_topic("T")] == ["C", "D"]


def test_one_character_too_many_is_not_taken() -> None:
    it = Fixture(capacity=2 * (ENTRY_SIZE + 5))
    it.register("A", ("T", "a = 1", 1))
    it.register("B", ("T", "a = 10", 1))
    assert it.expression(group="B") is None
    it.register("B", ("T", "a = 1", 1))
    assert it.expression(group="B") == "a = 1"


def test_all_that_have_been_dead_for_a_day_are_forgotten() -> None:
    it = Fixture()
    for group in ("G", "H", "I"):
        it.register(group, ("T", "a = 1", 1), ("U", "a = 1", 1))
    it.table.unregister("G")
    it.table.unregister("I")
    it.now += DAY_MS
    it.table.clean()
    left = [data.group for topic in ("T", "U") for data in it.table.of_topic(topic)]
    assert left == ["H", "H"]


def test_a_subscription_without_an_expression_has_no_filter() -> None:
    it = Fixture()
    it.register("G", ("T", "", 1))
    it.register("H", ("T", "a = 1", 1), kind="TAG")
    assert list(it.table.of_topic("T")) == []
