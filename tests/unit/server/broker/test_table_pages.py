"""Tables of a master that go to its slave page by page: none outgrows a frame."""

from typing import Any

from twisted.internet.defer import Deferred, succeed

from rmq_ha.base.errors import RemotingError
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire.bodies import GroupTable, TopicTable
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pages import FIRST, NEXT, PAGE_SIZE
from rmq_ha.server.broker.outer_api import BrokerOuterAPI
from tests.unit.server.broker.asked_broker import AskedBroker


class Master:
    """Answers as a broker of ours does; `between` happens after each answer."""

    def __init__(self) -> None:
        self.kit = AskedBroker()
        self.answers: list[RemotingCommand] = []
        self.between: Any = lambda: None

    def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> "Deferred[RemotingCommand]":
        answer = self.kit.request(command.code, command.ext)
        self.answers.append(answer)
        self.between()
        return succeed(answer)

    def largest(self) -> int:
        """Bytes of a body."""
        return max(len(answer.body or b"") for answer in self.answers)


class TestPages:
    def setup_method(self) -> None:
        self.master = Master()
        self.api = BrokerOuterAPI(self.master)

    def asked(self, coroutine: Any) -> Any:
        """What it returns, or the failure."""
        results: list[Any] = []
        Deferred.fromCoroutine(coroutine).addBoth(results.append)
        return results[0]

    def test_offsets(self) -> None:
        """By queues, not by groups: a group on a wide topic has thousands of them."""
        offsets = self.master.kit.offsets
        offsets.table = {f"Topic{n}@group": dict.fromkeys(range(500), n) for n in range(101)}
        assert self.asked(self.api.consumer_offsets("m:1")) == offsets.table
        assert len(self.master.answers) == 6
        assert self.master.largest() < len(offsets.to_body()) / 4

    def test_one_group_with_more_queues_than_a_page(self) -> None:
        offsets = self.master.kit.offsets
        offsets.table = {f"T@g{n}": dict.fromkeys(range(PAGE_SIZE + 1), n) for n in range(3)}
        assert self.asked(self.api.consumer_offsets("m:1")) == offsets.table
        assert len(self.master.answers) == 3

    def test_topics_and_groups(self) -> None:
        topics, groups = self.master.kit.topics, self.master.kit.groups
        topics._table = {f"Topic{n}": TopicConfig(f"Topic{n}") for n in range(PAGE_SIZE + 1)}
        groups._table = {f"g{n}": SubscriptionGroupConfig(f"g{n}") for n in range(PAGE_SIZE + 1)}
        copied = self.asked(self.api.topic_configs("m:1"))
        assert copied == TopicTable(topics.data_version, topics.table)
        copied = self.asked(self.api.subscription_groups("m:1"))
        assert copied == GroupTable(groups.data_version, groups.table)
        assert [NEXT in (answer.ext or {}) for answer in self.master.answers] == [1, 0, 1, 0]

    def test_a_table_that_changes_between_its_pages_is_none(self) -> None:
        """Half of one version and half of another would be taken for the newer one."""
        topics = self.master.kit.topics
        topics._table = {f"Topic{n}": TopicConfig(f"Topic{n}") for n in range(PAGE_SIZE + 1)}
        self.master.between = lambda: topics.delete("Topic5")
        failure = self.asked(self.api.topic_configs("m:1"))
        failure.trap(RemotingError)
        assert "changed while its pages were copied" in str(failure.value)

    def test_who_asks_for_no_page_gets_all(self) -> None:
        """Slaves of Java, and mqadmin."""
        offsets = self.master.kit.offsets
        offsets.table = {f"Topic{n}@group": dict.fromkeys(range(500), n) for n in range(101)}
        answer = self.master.kit.request(43)
        assert (answer.body, answer.ext) == (offsets.to_body(), None)

    def test_places_that_are_none(self) -> None:
        kit = self.master.kit
        assert kit.request(43, {FIRST: "x"}).code == 1
        whole = kit.request(43, {FIRST: "0"}).body
        assert kit.request(43, {FIRST: "-5"}).body == whole
        assert kit.request(43, {FIRST: str(2**63 - 1)}).body == b'{"offsetTable":{}}'
