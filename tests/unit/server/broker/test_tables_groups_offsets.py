"""SubscriptionGroupManager and ConsumerOffsetManager. Spec: store.md, sections 12.3 and 12.4."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig
from rmq_ha.base.model.topics import BUILT_IN_GROUPS
from rmq_ha.base.wire import fastjson
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.tables.groups import SubscriptionGroupManager
from rmq_ha.testing.disk import SimDisk
from rmq_ha.testing.worker import AtOnce

PATH = "/store/config/x.json"


def groups(disk: SimDisk | None = None, **settings: Any) -> SubscriptionGroupManager:
    return SubscriptionGroupManager(
        disk or SimDisk(Random(1), lambda: 0), AtOnce(), PATH, BrokerConfig(**settings), lambda: 5
    )


def offsets(disk: SimDisk | None = None) -> ConsumerOffsetManager:
    return ConsumerOffsetManager(disk or SimDisk(Random(1), lambda: 0), AtOnce(), PATH)


class TestGroups:
    def test_built_in(self) -> None:
        assert set(groups().table) == set(BUILT_IN_GROUPS)

    def test_find_creates(self) -> None:
        disk = SimDisk(Random(1), lambda: 0)
        table = groups(disk)
        assert table.get("CG") is None
        assert table.find("CG") == SubscriptionGroupConfig("CG")
        assert table.data_version == DataVersion(5, 1)
        assert b'"CG":{' in disk.read_bytes(PATH)
        table.find("CG")
        assert table.data_version.counter == 1

    def test_find_without_auto_creation(self) -> None:
        """System groups are created all the same."""
        table = groups(auto_create_subscription_group=False)
        assert table.find("CG") is None
        assert table.find("CID_RMQ_SYS_TRANS") is not None

    def test_find_never_creates_what_no_client_would_accept(self) -> None:
        table = groups()
        for name in ("", " ", "a@b", "a b", "x" * 256, "\ud800"):
            assert table.find(name) is None, name
        assert table.find("x" * 255) is not None

    def test_update_delete(self) -> None:
        table = groups()
        table.update(SubscriptionGroupConfig("CG", consume_enable=False))
        found = table.get("CG")
        assert found is not None
        assert not found.consume_enable
        assert table.delete("CG") is not None
        assert table.delete("CG") is None
        assert table.data_version.counter == 2

    def test_replace_all_and_load(self) -> None:
        disk = SimDisk(Random(1), lambda: 0)
        groups(disk).replace_all(DataVersion(7, 9), {"CG": SubscriptionGroupConfig("CG")})
        again = groups(disk)
        again.load()
        assert again.data_version == DataVersion(7, 9)
        assert set(again.table) == {*BUILT_IN_GROUPS, "CG"}


class TestOffsets:
    def test_commit_and_query(self) -> None:
        """Stored as it comes: lower values, too. -1 where there is none."""
        table = offsets()
        assert table.query("G", "T", 0) == -1
        table.commit("G", "T", 0, 9)
        table.commit("G", "T", 0, 3)
        assert table.query("G", "T", 0) == 3
        assert table.query("G", "T", 1) == -1
        assert dict(table.queues("G", "T")) == {0: 3}
        assert dict(table.queues("G", "U")) == {}

    def test_only_changes_are_written(self) -> None:
        worker = AtOnce()
        table = ConsumerOffsetManager(SimDisk(Random(1), lambda: 0), worker, PATH)
        table.persist_if_dirty()
        assert worker.calls == 0
        table.commit("G", "T", 0, 9)
        table.persist_if_dirty()
        table.commit("G", "T", 0, 9)
        table.persist_if_dirty()
        assert worker.calls == 1

    def test_merge_is_by_topic_and_group(self) -> None:
        """A pair's queues are replaced as a whole; pairs that the master lacks stay."""
        table = offsets()
        table.commit("G", "T", 0, 1)
        table.commit("G", "T", 1, 1)
        table.commit("H", "T", 0, 4)
        assert table.merge({"T@G": {0: 7}, "U@G": {2: 2}}) is True
        assert table.table == {"T@G": {0: 7}, "T@H": {0: 4}, "U@G": {2: 2}}
        assert table.merge({"T@G": {0: 7}}) is False

    def test_remove_and_listings(self) -> None:
        table = offsets()
        table.commit("G", "T", 0, 1)
        table.commit("G", "U", 0, 2)
        table.commit("H", "T", 0, 3)
        assert table.which_groups("T") == {"G", "H"}
        assert table.which_topics("G") == {"T", "U"}
        assert table.remove_group("G") == 2
        assert table.remove_group("G") == 0
        assert set(table.table) == {"T@H"}

    def test_every_change_reaches_the_disk(self) -> None:
        """Whatever alters the table: a crash after the next write has it."""
        changes: list[Callable[[ConsumerOffsetManager], object]] = [
            lambda table: table.commit("CG", "T", 0, 6),
            lambda table: table.commit("New", "T", 0, 1),
            lambda table: table.merge({"T@CG": {0: 9}, "U@CG": {1: 4}}),
            lambda table: table.clone("CG", "Copy", "T"),
            lambda table: table.remove_group("CG"),
        ]
        for change in changes:
            disk = SimDisk(Random(1), lambda: 0)
            table = offsets(disk)
            table.commit("CG", "T", 0, 5)
            table.persist()
            before = table.to_body()
            change(table)
            assert table.to_body() != before
            table.persist_if_dirty()
            again = offsets(disk.crash())
            again.load()
            assert again.table == table.table

    def test_a_clone_of_nothing_is_nothing(self) -> None:
        """The other group has no offsets there: what one has oneself stays, and is not written."""
        table = offsets()
        table.commit("CG", "T", 0, 5)
        table.persist()
        assert not table.clone("nobody", "CG", "T")
        assert table.queues("CG", "T") == {0: 5}
        assert not table.is_dirty
        assert table.clone("CG", "Copy", "T")
        table.commit("Copy", "T", 0, 9)
        assert table.queues("CG", "T") == {0: 5}

    def test_file(self) -> None:
        disk = SimDisk(Random(1), lambda: 0)
        table = offsets(disk)
        table.commit("G", "%RETRY%G", 0, 1)
        table.persist()
        assert (
            disk.read_bytes(PATH) == b'{\n\t"offsetTable":{\n\t\t"%RETRY%G@G":{0:1\n\t\t}\n\t}\n}'
        )
        again = offsets(disk)
        again.commit("X", "T", 0, 1)
        again.load()
        assert again.table == {"%RETRY%G@G": {0: 1}}

    def test_names_that_cannot_be_encoded_do_not_stop_the_file(self) -> None:
        """A hostile client's half of a surrogate pair costs nobody else his offsets."""
        disk = SimDisk(Random(1), lambda: 0)
        table = offsets(disk)
        table.commit("G\ud800", "T", 0, 1)
        table.commit("G", "T", 0, 2)
        table.persist()
        again = offsets(disk)
        again.load()
        assert again.query("G", "T", 0) == 2


NAMES = st.sampled_from(["A", "B"])
QUEUES = st.integers(0, 2)
CHANGES = st.one_of(
    st.tuples(st.just("commit"), NAMES, NAMES, QUEUES, st.integers(0, 3)),
    st.tuples(st.just("merge"), st.fixed_dictionaries({"A@B": st.dictionaries(QUEUES, QUEUES)})),
    st.tuples(st.just("clone"), NAMES, NAMES, NAMES),
    st.tuples(st.just("remove_group"), NAMES),
    st.tuples(st.just("remove_topic"), NAMES),
    st.tuples(st.just("begin_anew"), NAMES, QUEUES, st.integers(0, 2)),
)


@given(st.lists(CHANGES, max_size=30))
def test_the_file_is_the_table_after_any_changes(changes: list[tuple[Any, ...]]) -> None:
    """What did not change is not laid out again; whatever did is."""
    table = offsets()
    for name, *arguments in changes:
        getattr(table, name)(*arguments)
        assert table.encode() == fastjson.pretty(table.to_json())


def test_what_did_not_change_is_not_laid_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table = offsets()
    for number in range(100):
        table.commit(f"G{number}", "T", 0, 1)
    table.encode()
    laid_out: list[Any] = []
    pretty_part = fastjson.pretty_part
    monkeypatch.setattr(
        fastjson, "pretty_part", lambda *part: laid_out.append(part[0]) or pretty_part(*part)
    )
    table.commit("G7", "T", 0, 2)
    table.commit("G8", "T", 0, 1)
    table.encode()
    assert laid_out == [{0: 2}]


def test_a_group_that_may_not_consume_is_changed_once() -> None:
    """And an unknown one is not made by that."""
    table = groups()
    table.find("G")
    for _ in range(2):
        table.disable_consume("G")
        known = table.get("G")
        assert known is not None
        assert not known.consume_enable
        assert table.data_version.counter == 2
    table.disable_consume("unknown")
    assert table.get("unknown") is None


def test_who_consumes_what() -> None:
    table, changed = offsets(), list[str]()
    table.on_change = changed.append
    for group, topic in (("G", "T"), ("G", "U"), ("H", "T")):
        table.commit(group, topic, 0, 5)
        table.commit(group, topic, 0, 5)
    assert changed == ["T@G", "U@G", "T@H"]
    assert table.topics_by_group() == {"G": {"T", "U"}, "H": {"T"}}
    assert table.to_json_of_5() == {
        "dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0},
        "groupTopicMap": {"G": ["T", "U"], "H": ["T"]},
        "offsetTable": {"T@G": {0: 5}, "U@G": {0: 5}, "T@H": {0: 5}},
    }
    assert table.remove_topic("T") == 2
    assert table.topics_by_group() == {"G": {"U"}}
