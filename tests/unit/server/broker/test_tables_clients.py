"""ConsumerManager and ProducerManager. Spec: remoting.md, sections 7.1, 7.2 and 7.5."""

from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.server.broker.tables.clients import ClientChannelInfo, ConsumerManager, ProducerManager
from tests.kits.channel import FakeChannel


def client(channel: FakeChannel, client_id: str = "c1", at: int = 0) -> ClientChannelInfo:
    return ClientChannelInfo(channel, client_id, "JAVA", 407, seen_ms=at)


def register(
    consumers: ConsumerManager,
    info: ClientChannelInfo,
    *subscriptions: SubscriptionData,
    group: str = "CG",
) -> bool:
    return consumers.register(
        group, info, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", subscriptions
    )


T1, T2 = SubscriptionData.for_tags("T1", "*", 1), SubscriptionData.for_tags("T2", "A", 1)


def wanted(consumers: ConsumerManager) -> dict[str, SubscriptionData]:
    info = consumers.group("CG")
    assert info is not None
    return info.subscriptions


class TestConsumers:
    def setup_method(self) -> None:
        self.consumers = ConsumerManager()
        self.one, self.two = FakeChannel(1), FakeChannel(2)

    def test_a_new_connection_is_news(self) -> None:
        assert register(self.consumers, client(self.one), T1) is True
        assert register(self.consumers, client(self.one), T1) is False
        assert register(self.consumers, client(self.two, "c2"), T1) is True
        assert self.consumers.client_ids("CG") == ["c1", "c2"]

    def test_topics_that_come_or_go_are_news(self) -> None:
        register(self.consumers, client(self.one), T1)
        assert register(self.consumers, client(self.one), T1, T2) is True
        assert register(self.consumers, client(self.one), T2) is True
        assert "T1" not in wanted(self.consumers)

    def test_several_topics_come_or_go_with_one_heartbeat(self) -> None:
        others = [SubscriptionData.for_tags(name, "*", 1) for name in ("T3", "T4", "T5")]
        assert register(self.consumers, client(self.one), T1, *others) is True
        assert set(wanted(self.consumers)) == {"T1", "T3", "T4", "T5"}
        assert register(self.consumers, client(self.one), T1, T2) is True
        assert set(wanted(self.consumers)) == {"T1", "T2"}

    def test_who_is_told_of_groups_hears_of_those_whose_last_member_left(self) -> None:
        gone: list[str] = []
        consumers = ConsumerManager(gone.append)
        for group in ("A", "B"):
            register(consumers, client(self.one), T1, group=group)
        register(consumers, client(self.two), T1, group="B")
        assert consumers.channel_closed(self.one) == ["A", "B"]
        assert gone == ["A"]
        consumers.unregister("B", self.two)
        assert gone == ["A", "B"]
        assert consumers._memberships._groups == {}  # nor is anything of the connections kept

    def test_everybody_who_is_silent_expires_once(self) -> None:
        third = FakeChannel(3)
        register(self.consumers, client(self.one), T1)
        register(self.consumers, client(third, "c3", at=1), T1)
        register(self.consumers, client(self.two, "c2"), T1)
        register(self.consumers, client(self.two, "c2"), T1, group="CG2")
        register(self.consumers, client(self.one), T1, group="CG3")
        assert self.consumers.expired(120_001) == [self.one, self.two]

    def test_of_two_connections_of_a_client_the_later_one_is_found(self) -> None:
        third = FakeChannel(3)
        for channel, name in ((self.one, "c1"), (self.two, "c2"), (third, "c1")):
            register(self.consumers, client(channel, name), T1)
        found = [self.consumers.find_client("CG", name) for name in ("c1", "c2")]
        assert [item and item.channel for item in found] == [third, self.two]

    def test_only_a_higher_version_replaces_an_expression(self) -> None:
        register(self.consumers, client(self.one), T2)
        same, newer = (
            SubscriptionData.for_tags("T2", "B", 1),
            SubscriptionData.for_tags("T2", "C", 2),
        )
        assert register(self.consumers, client(self.one), same) is False
        assert wanted(self.consumers)["T2"] is T2
        assert register(self.consumers, client(self.one), newer) is False
        assert wanted(self.consumers)["T2"] is newer

    def test_the_last_heartbeat_says_how_the_group_consumes(self) -> None:
        register(self.consumers, client(self.one), T1)
        self.consumers.register(
            "CG",
            client(self.one),
            "CONSUME_ACTIVELY",
            "BROADCASTING",
            "CONSUME_FROM_TIMESTAMP",
            [T1],
        )
        group = self.consumers.group("CG")
        assert group is not None
        assert group.consume_type == "CONSUME_ACTIVELY"
        assert group.message_model == "BROADCASTING"
        assert group.consume_from_where == "CONSUME_FROM_TIMESTAMP"

    def test_a_closed_connection_leaves_all_its_groups(self) -> None:
        register(self.consumers, client(self.one), T1)
        register(self.consumers, client(self.one), T1, group="CG2")
        register(self.consumers, client(self.two, "c2"), T1)
        assert self.consumers.channel_closed(self.one) == ["CG", "CG2"]
        assert self.consumers.channels("CG") == [self.two]
        assert self.consumers.groups() == ["CG"]
        assert self.consumers.channel_closed(self.one) == []

    def test_unregister(self) -> None:
        register(self.consumers, client(self.one), T1)
        assert self.consumers.unregister("CG", self.two) is False
        assert self.consumers.unregister("CG", self.one) is True
        assert self.consumers.unregister("CG", self.one) is False
        assert self.consumers.client_ids("CG") == []

    def test_expiry_after_120_s(self) -> None:
        register(self.consumers, client(self.one, at=1000), T1)
        register(self.consumers, client(self.two, "c2", at=5000), T1)
        assert self.consumers.expired(121_000) == []
        assert self.consumers.expired(121_001) == [self.one]
        assert self.consumers.client_ids("CG") == ["c1", "c2"]  # until the caller closed it

    def test_lookups(self) -> None:
        register(self.consumers, client(self.one), T1)
        found = self.consumers.find_client("CG", "c1")
        assert found is not None
        assert found.channel is self.one
        assert self.consumers.find_client("CG", "c9") is None
        assert self.consumers.find_client("no", "c1") is None
        assert self.consumers.which_groups("T1") == {"CG"}
        assert self.consumers.which_groups("T2") == set()


class TestProducers:
    def setup_method(self) -> None:
        self.producers = ProducerManager()
        self.one, self.two = FakeChannel(1), FakeChannel(2)

    def test_register_and_find(self) -> None:
        self.producers.register("PG", client(self.one, "p1"))
        self.producers.register("PG2", client(self.one, "p1"))
        self.producers.unregister("PG", self.one)
        assert self.producers.groups() == ["PG2"]
        self.producers.unregister("PG2", self.one)
        assert self.producers.groups() == []

    def test_a_reconnected_client_keeps_its_new_connection(self) -> None:
        """The old connection's late end must not hide the client."""
        self.producers.register("PG", client(self.one, "p1"))
        self.producers.register("PG", client(self.two, "p1"))
        self.producers.channel_closed(self.one)
        assert [item.channel for item in self.producers.clients("PG")] == [self.two]

    def test_expiry(self) -> None:
        self.producers.register("PG", client(self.one, "p1", at=0))
        self.producers.register("PG", client(self.one, "p1", at=50))
        assert self.producers.expired(120_050) == []
        assert self.producers.expired(120_051) == [self.one]

    def test_a_changed_client_id(self) -> None:
        self.producers.register("PG", client(self.one, "p1"))
        self.producers.register("PG", client(self.one, "p2"))
        assert [item.client_id for item in self.producers.clients("PG")] == ["p2"]


def test_a_producer_is_found_by_its_client_id() -> None:
    """Over the connection that said so last; one that stays is found again after that."""
    producers = ProducerManager()
    first, second = FakeChannel(1), FakeChannel(2)
    producers.register("G", ClientChannelInfo(first, "c1"))
    producers.register("H", ClientChannelInfo(first, "c1"))
    assert producers.find_channel("c1") is first
    assert producers.find_channel("c2") is None
    producers.register("G", ClientChannelInfo(second, "c1"))
    producers.register("G", ClientChannelInfo(first, "c1"))
    assert producers.find_channel("c1") is second
    producers.channel_closed(second)
    assert producers.find_channel("c1") is None
    producers.register("G", ClientChannelInfo(first, "c1"))
    assert producers.find_channel("c1") is first
    producers.unregister("G", first)
    assert producers.find_channel("c1") is first
    producers.unregister("H", first)
    assert producers.find_channel("c1") is None


def test_an_old_connection_s_end_does_not_hide_a_client() -> None:
    producers = ProducerManager()
    first, second = FakeChannel(1), FakeChannel(2)
    for group in ("G", "H"):
        producers.register(group, ClientChannelInfo(first, "c1"))
    producers.register("G", ClientChannelInfo(second, "c1"))
    producers.channel_closed(first)
    assert producers.groups() == ["G"]
    assert producers.find_channel("c1") is second


def test_a_client_id_is_the_account_s_that_said_so_first() -> None:
    """Until its connection is gone: then it is the next one's."""
    producers = ProducerManager()
    first, second = FakeChannel(1), FakeChannel(2)
    for _ in range(2):
        producers.register("G", ClientChannelInfo(first, "c1", owner="alice"))
        producers.register("G", ClientChannelInfo(second, "c1", owner="bob"))
        assert producers.find_channel("c1") is first
    producers.channel_closed(first)
    producers.register("G", ClientChannelInfo(second, "c1", owner="bob"))
    assert producers.find_channel("c1") is second


def test_a_connection_has_one_client_id() -> None:
    """Changing it does not leave the old one behind."""
    producers = ProducerManager()
    channel = FakeChannel(1)
    producers.register("G", ClientChannelInfo(channel, "c1"))
    producers.register("G", ClientChannelInfo(channel, "c2"))
    assert producers.find_channel("c1") is None
    assert producers.find_channel("c2") is channel
