"""RouteInfoManager. Spec: remoting.md, chapter 9."""

from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.model.broker_identity import BrokerIdentity
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.route_bodies import Rival
from rmq_ha.server.namesrv.claims import CLAIM_SECONDS
from rmq_ha.server.namesrv.routes import RegisterResult, RouteInfoManager
from tests.kits.channel import FakeChannel

MASTER = BrokerIdentity("C", "a", 0, "m:10911", "m:10912")
SLAVE = BrokerIdentity("C", "a", 1, "s:10911", "s:10912")
OTHER = BrokerIdentity("C", "b", 0, "o:10911", "o:10912")
V1, V2 = DataVersion(1, 1), DataVersion(2, 2)


class Routes(RouteInfoManager):
    """With defaults for what a test does not care for."""

    channel = FakeChannel()

    def put(
        self,
        broker: BrokerIdentity,
        *topics: TopicConfig,
        version: DataVersion = V1,
        channel: FakeChannel | None = None,
        filters: list[str] | None = None,
        now: float = 0.0,
        takes_over: str = "",
    ) -> RegisterResult:
        table = {item.topic_name: item for item in topics}
        channel = channel or self.channel
        return self.register(broker, version, table, filters, channel, now, takes_over)

    def master(self) -> str | None:
        """Where clients of broker `a` send to."""
        return self.cluster_info().brokers["a"].addresses.get(0)

    def perm(self, topic: str) -> int | None:
        found = self.route(topic)
        return None if found is None else found.queues[0].perm


def topic(name: str, perm: int = 6, sys_flag: int = 0) -> TopicConfig:
    return TopicConfig(name, 8, 8, perm, topic_sys_flag=sys_flag)


class TestRegister:
    def test_a_master_makes_routes(self) -> None:
        routes = Routes()
        assert routes.put(MASTER, topic("T")) == RegisterResult(True)
        found = routes.route("T")
        assert found is not None
        assert found.brokers[0].addresses == {0: "m:10911"}
        assert found.queues[0].write_queue_nums == 8
        assert routes.route("U") is None

    def test_a_slave_makes_none(self) -> None:
        routes = Routes()
        assert routes.put(SLAVE, topic("T")) == RegisterResult(True)
        assert routes.route("T") is None
        assert routes.topics() == []

    def test_a_slave_learns_its_master(self) -> None:
        routes = Routes()
        routes.put(MASTER)
        assert routes.put(SLAVE) == RegisterResult(True, "m:10912", "m:10911")
        assert routes.put(MASTER) == RegisterResult(False)

    def test_a_slave_does_not_learn_a_dead_master(self) -> None:
        routes = Routes()
        routes.put(MASTER, now=0)
        routes.put(SLAVE, now=100)
        routes.expire(121)
        assert routes.put(SLAVE, now=121) == RegisterResult(False)

    def test_an_equal_version_is_not_looked_at(self) -> None:
        """New topics stay unknown, wiped permissions stay wiped."""
        routes = Routes()
        routes.put(MASTER, topic("T"))
        routes.wipe_write_perm("a")
        routes.put(MASTER, topic("T"), topic("U"))
        assert routes.perm("T") == 4
        assert routes.route("U") is None

    def test_a_partial_body_keeps_the_other_topics(self) -> None:
        routes = Routes()
        routes.put(MASTER, topic("T"), topic("U"))
        routes.put(MASTER, topic("U", 4), version=V2)
        assert routes.perm("T") == 6
        assert routes.perm("U") == 4

    def test_a_whole_body_removes_the_topics_that_are_not_in_it(self) -> None:
        """Of its own broker; a topic that nobody has is forgotten."""
        routes = Routes()
        routes.put(MASTER, topic("T"), topic("U"), topic("V"))
        routes.put(OTHER, topic("T"))
        routes.put(MASTER, topic("U"), version=V2)
        assert routes.pairs == 4
        table = {"U": topic("U")}
        routes.register(MASTER, DataVersion(3, 3), table, None, FakeChannel(), 0.0, has_all=True)
        route = routes.route("T")
        assert route is not None
        assert [queue.broker_name for queue in route.queues] == ["b"]
        assert routes.route("V") is None
        assert routes.pairs == 2

    def test_first_counts_although_the_version_is_known(self) -> None:
        """A slave that becomes master under its address and version brings its topics."""
        routes = Routes()
        routes.put(SLAVE, topic("T"), version=V2)
        promoted = SLAVE._replace(broker_id=0)
        routes.put(promoted, topic("T"), version=V2)
        found = routes.route("T")
        assert found is not None
        assert found.brokers[0].addresses == {0: "s:10911"}

    def test_an_address_moves_to_its_new_id(self) -> None:
        routes = Routes()
        routes.put(MASTER, topic("T"))
        routes.put(SLAVE)
        routes.put(SLAVE._replace(broker_id=0), topic("T"), version=V2)
        routes.put(MASTER._replace(broker_id=1), version=V2)
        found = routes.route("T")
        assert found is not None
        assert found.brokers[0].addresses == {0: "s:10911", 1: "m:10911"}

    def test_an_address_has_one_id_whatever_stood_before_it(self) -> None:
        """Else clients would read from one broker as master and as slave."""
        routes = Routes()
        routes.put(MASTER, topic("T"))
        routes.put(SLAVE)
        routes.put(SLAVE._replace(broker_id=2))
        found = routes.route("T")
        assert found is not None
        assert found.brokers[0].addresses == {0: "m:10911", 2: "s:10911"}

    def test_filter_servers(self) -> None:
        """None leaves them, an empty list removes them."""
        routes = Routes()
        routes.put(MASTER, topic("T"), filters=["f:1"])
        routes.put(MASTER, filters=None)
        found = routes.route("T")
        assert found is not None
        assert found.filter_servers == {"m:10911": ["f:1"]}
        routes.put(MASTER, filters=[])
        found = routes.route("T")
        assert found is not None
        assert found.filter_servers == {}


def epoch(number: int) -> DataVersion:
    return DataVersion(1, 1, number)


class TestTwoMasters:
    """Clients are sent to one of them, and it is not another one every 30 s."""

    SECOND = MASTER._replace(address="n:10911", ha_address="n:10912")

    def pair(self) -> Routes:
        """`m` was the master, `n` took over; both are connected."""
        routes = Routes()
        routes.put(MASTER, topic("T"))
        assert routes.put(self.SECOND, topic("T"), channel=FakeChannel()).displaced == "m:10911"
        return routes

    def test_the_newcomer_gets_it_and_keeps_it(self) -> None:
        routes = self.pair()
        for now, is_news in ((1.0, True), (31.0, False), (61.0, False)):
            result = routes.put(MASTER, topic("T"), now=now)
            assert (result.holder, result.is_news) == ("n:10911", is_news)
            assert routes.master() == "n:10911"
            assert routes.rivals(now) == [Rival("a", 0, "m:10911", "n:10911")]
        assert (routes.claims.takeovers, routes.claims.refused) == (1, 3)
        assert routes.rivals(61 + CLAIM_SECONDS + 1) == [], "it claims nothing any more"

    def test_a_machine_that_reboots_does_not_get_it_back(self) -> None:
        """Its connection was gone, and its name left the tables, before the other one came."""
        for leaves in (
            lambda routes: routes.connection_lost(routes.channel),
            lambda routes: routes.unregister(MASTER, routes.channel),
        ):
            routes = Routes()
            routes.put(MASTER, topic("T"))
            leaves(routes)
            assert routes.put(self.SECOND, channel=FakeChannel()).displaced is None
            assert routes.put(MASTER, topic("T")).holder == "n:10911"
            assert routes.master() == "n:10911"

    def test_it_gets_it_when_the_other_one_is_gone(self) -> None:
        """Fail back by hand: the new master is stopped first."""
        routes, other = Routes(), FakeChannel()
        routes.put(MASTER)
        routes.put(self.SECOND, channel=other)
        assert routes.put(MASTER).holder == "n:10911"
        routes.unregister(self.SECOND, other)
        assert routes.put(MASTER) == RegisterResult(True)
        assert routes.rivals(0) == []
        assert routes.put(self.SECOND, channel=other).holder == "m:10911"

    def test_it_gets_it_when_the_other_one_is_silent_for_120_s(self) -> None:
        routes = self.pair()
        routes.expire(121)
        assert routes.put(MASTER, now=121) == RegisterResult(True)

    def test_who_found_the_other_one_dead_gets_it_at_once(self) -> None:
        """A pod comes back to its old address while the connection of the dead one still stands."""
        routes = self.pair()
        assert routes.put(MASTER, takes_over="x:10911").holder == "n:10911"
        assert routes.put(MASTER, takes_over="n:10911").displaced == "n:10911"
        assert routes.master() == "m:10911"

    def test_a_restart_at_the_same_address_and_a_new_address_are_served_at_once(self) -> None:
        routes = Routes()
        routes.put(MASTER, topic("T"))
        routes.connection_lost(routes.channel)
        assert routes.put(MASTER, topic("T")) == RegisterResult(True)
        assert routes.put(self.SECOND, topic("T"), channel=FakeChannel()).holder is None
        third = MASTER._replace(address="o:10911")
        assert routes.put(third, topic("T"), channel=FakeChannel()).holder is None
        assert routes.master() == "o:10911"

    def test_who_became_a_slave_may_be_elected_again(self) -> None:
        """DLedger of 4.9 sends no epoch, and the leader before may hang with its connection."""
        routes, other = Routes(), FakeChannel()
        second = self.SECOND._replace(broker_id=2)
        routes.put(MASTER, topic("T"))
        routes.put(second, channel=other)
        routes.put(self.SECOND, topic("T"), channel=other)
        routes.put(MASTER._replace(broker_id=1))
        assert routes.put(MASTER).displaced == "n:10911"
        routes.put(MASTER._replace(broker_id=1))  # in an orderly way, this time
        assert routes.put(self.SECOND, channel=other).displaced is None
        assert routes.put(MASTER).displaced == "n:10911"

    def test_slaves_with_one_id_learn_their_master_as_ever(self) -> None:
        routes = Routes()
        routes.put(MASTER, topic("T"))
        third = SLAVE._replace(address="t:10911")
        for broker in (SLAVE, third, SLAVE, third):
            result = routes.put(broker, channel=FakeChannel())
            assert (result.holder, result.master_address) == (None, "m:10911")

    def test_the_higher_epoch_keeps_it(self) -> None:
        """As 5.x: a deposed master does not get id 0 back, nor does a registration that is late."""
        routes = Routes()
        routes.put(MASTER, topic("T"), version=epoch(3))
        assert routes.put(self.SECOND, version=epoch(4), channel=FakeChannel()).holder is None
        for late in (epoch(3), V1):
            result = routes.put(MASTER, topic("T"), version=late)
            assert (result.holder, result.is_outdated) == ("n:10911", True)
        assert routes.put(MASTER, version=epoch(5)).displaced == "n:10911"
        assert routes.claims.takeovers == 0, "elections"
        slave = SLAVE._replace(broker_id=2)
        routes.put(slave, version=epoch(5), channel=FakeChannel())
        other = slave._replace(address="u:10911")
        result = routes.put(other, version=epoch(4), channel=FakeChannel())
        assert (result.holder, result.master_address) == ("s:10911", "m:10911")

    def test_an_epoch_is_compared_with_the_living_only(self) -> None:
        """Controllers that lost their files begin with epoch 1 again."""
        routes, other = Routes(), FakeChannel()
        routes.put(MASTER, version=epoch(9), channel=other)
        routes.connection_lost(other)
        assert routes.put(self.SECOND, version=epoch(1)).holder is None

    def test_as_in_4_9_the_last_one_wins(self) -> None:
        """namesrvLastRegistrationWins: the route changes to and fro, and that is counted."""
        routes = Routes(last_wins=lambda: True)
        routes.put(MASTER, topic("T"))
        for now in (1.0, 31.0):
            assert routes.put(self.SECOND, channel=FakeChannel(), now=now).displaced == "m:10911"
            assert routes.put(MASTER, now=now).displaced == "n:10911"
        assert routes.claims.takeovers == 4
        assert routes.rivals(31.0) == [Rival("a", 0, "n:10911", "m:10911")]

    def test_who_asks_as_a_master_and_does_not_register_is_a_rival(self) -> None:
        routes = Routes()
        routes.put(self.SECOND)
        routes.claim(MASTER, 1.0)
        routes.claim(SLAVE, 1.0)
        assert routes.rivals(1.0) == [Rival("a", 0, "m:10911", "n:10911")]
        routes.unregister(self.SECOND, routes.channel)
        assert routes.rivals(1.0) == []

    def test_what_is_remembered_has_a_bound(self) -> None:
        routes = Routes()
        for number in range(100):
            routes.put(MASTER._replace(address=f"p{number}:1"), channel=FakeChannel())
        assert routes.put(MASTER._replace(address="p0:1"), channel=FakeChannel()).holder is None
        assert routes.put(MASTER._replace(address="p98:1")).holder == "p0:1"


class TestLeave:
    def test_unregister_the_last_replica(self) -> None:
        routes = Routes()
        routes.put(MASTER, topic("T"), topic("U"), topic("V"))
        routes.put(OTHER, topic("T"))
        routes.unregister(MASTER, routes.channel)
        assert routes.topics() == ["T"]
        found = routes.route("T")
        assert found is not None
        assert [queue.broker_name for queue in found.queues] == ["b"]
        routes.unregister(OTHER, routes.channel)
        assert routes.route("T") is None
        assert routes.topics() == []
        assert routes.cluster_info().encode() == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'

    def test_unregister_a_master_keeps_its_slave_in_the_route(self) -> None:
        routes = Routes()
        routes.put(MASTER, topic("T"))
        routes.put(SLAVE)
        routes.unregister(MASTER, routes.channel)
        found = routes.route("T")
        assert found is not None
        assert found.brokers[0].addresses == {1: "s:10911"}

    def test_a_late_good_bye_does_not_remove_the_successor(self) -> None:
        routes = Routes()
        routes.put(MASTER, topic("T"))
        routes.put(SLAVE._replace(broker_id=0), topic("T"))
        routes.unregister(MASTER, routes.channel)
        found = routes.route("T")
        assert found is not None
        assert found.brokers[0].addresses == {0: "s:10911"}

    def test_a_good_bye_over_another_connection_is_not_the_brokers(self) -> None:
        """Of a second process with its configuration, which never served."""
        routes = Routes()
        routes.put(MASTER, topic("T"))
        assert not routes.unregister(MASTER, FakeChannel())
        found = routes.route("T")
        assert found is not None
        assert found.brokers[0].addresses == {0: "m:10911"}
        assert routes.unregister(MASTER, routes.channel)

    def test_unregister_nobody(self) -> None:
        assert Routes().unregister(MASTER, FakeChannel())

    def test_connection_lost(self) -> None:
        routes = Routes()
        mine, his = FakeChannel(), FakeChannel()
        routes.put(MASTER, topic("T"), channel=mine)
        routes.put(SLAVE, channel=his)
        assert routes.connection_lost(his) == ["s:10911"]
        assert routes.connection_lost(his) == []
        assert routes.connection_lost(mine) == ["m:10911"]
        assert routes.topics() == []

    def test_whoever_is_lost_takes_nobody_with_it(self) -> None:
        routes = Routes()
        far = BrokerIdentity("D", "c", 0, "f:10911", "f:10912")
        lost = FakeChannel()
        routes.put(MASTER, topic("T"))
        for broker in (OTHER, far):
            routes.put(broker, topic("T"), channel=lost)
        routes.connection_lost(lost)
        found = routes.route("T")
        assert found is not None
        assert [item.broker_name for item in found.brokers] == ["a"]
        assert routes.cluster_info().clusters == {"C": ["a"]}

    def test_all_brokers_of_a_lost_connection_go(self) -> None:
        """Several brokers, and several clusters, may live in one process."""
        routes = Routes()
        far = BrokerIdentity("D", "c", 0, "f:10911", "f:10912")
        shared = FakeChannel()
        for broker in (MASTER, SLAVE, OTHER, far):
            routes.put(broker, topic("T"), channel=shared)
        assert len(routes.connection_lost(shared)) == 4
        assert routes.route("T") is None
        assert routes.registrations() == {}
        assert routes.cluster_info().clusters == {}

    def test_registering_over_a_new_connection_moves_ownership(self) -> None:
        routes = Routes()
        old, new = FakeChannel(), FakeChannel()
        routes.put(MASTER, topic("T"), channel=old)
        routes.put(MASTER, channel=new)
        assert routes.connection_lost(old) == []
        assert routes.route("T") is not None

    def test_all_that_are_silent_go_at_once(self) -> None:
        """A rack that lost its power: no route leads there any more after one look."""
        routes = Routes()
        for broker in (MASTER, SLAVE, OTHER):
            routes.put(broker, topic("T"))
        assert len(routes.expire(121)) == 3
        assert routes.route("T") is None
        assert routes.registrations() == {}

    def test_expiry_after_120_s(self) -> None:
        routes = Routes()
        channel = FakeChannel()
        routes.put(MASTER, topic("T"), channel=channel, now=1)
        routes.put(OTHER, topic("T"), now=2)
        assert routes.expire(121.0) == []
        assert [(item.address, item.channel) for item in routes.expire(121.5)] == [
            ("m:10911", channel)
        ]
        found = routes.route("T")
        assert found is not None
        assert [item.broker_name for item in found.brokers] == ["b"]

    def test_a_version_query_is_a_sign_of_life(self) -> None:
        """Only when the versions are equal."""
        routes = Routes()
        routes.put(MASTER, topic("T"), now=0)
        assert routes.query_data_version("m:10911", V1, 100) == (False, V1)
        assert routes.expire(200) == []
        assert routes.query_data_version("m:10911", V2, 210) == (True, V1)
        assert routes.query_data_version("unknown", V2, 210) == (True, None)
        assert len(routes.expire(221)) == 1


class TestQueries:
    def test_golden_route(self) -> None:
        """Vector A.9, both forms."""
        routes = Routes()
        master = BrokerIdentity(
            "DefaultCluster", "broker-a", 0, "127.0.0.1:10911", "127.0.0.1:10912"
        )
        routes.put(master, topic("TopicA"))
        routes.put(master._replace(broker_id=1, address="127.0.0.1:11911"))
        found = routes.route("TopicA")
        assert found is not None
        tail = (
            b'"brokerName":"broker-a","cluster":"DefaultCluster"}],"filterServerTable":{},'
            b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,'
            b'"topicSysFlag":0,"writeQueueNums":8}]}'
        )
        assert found.encode() == (
            b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:11911"},' + tail
        )
        assert found.encode(standard_json=True) == (
            b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911","1":"127.0.0.1:11911"},' + tail
        )

    def test_cluster_info(self) -> None:
        routes = Routes()
        routes.put(MASTER)
        routes.put(SLAVE)
        assert routes.cluster_info().encode() == (
            b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"m:10911",1:"s:10911"},"brokerName":"a",'
            b'"cluster":"C"}},"clusterAddrTable":{"C":["a"]}}'
        )

    def test_topic_lists(self) -> None:
        routes = Routes()
        routes.put(MASTER, topic("T"), topic("U", sys_flag=1), topic("S", sys_flag=2))
        routes.put(OTHER._replace(cluster="D"), topic("V", sys_flag=3))
        assert routes.topics() == ["T", "U", "S", "V"]
        assert routes.topics_of_cluster("C") == ["T", "U", "S"]
        assert routes.topics_of_cluster("nowhere") == []
        assert routes.unit_topics() == ["U", "V"]
        assert routes.unit_sub_topics() == ["S", "V"]
        assert routes.unit_sub_non_unit_topics() == ["S"]
        assert routes.system_topics() == (["C", "a", "D", "b"], "m:10911")
        assert Routes().system_topics() == ([], None)

    def test_wipe_and_add_write_permission(self) -> None:
        """Counts topics; lasts until the broker registers a change."""
        routes = Routes()
        routes.put(MASTER, topic("T"), topic("U", 7))
        assert routes.wipe_write_perm("a") == 2
        assert (routes.perm("T"), routes.perm("U")) == (4, 5)
        assert routes.add_write_perm("a") == 2
        assert (routes.perm("T"), routes.perm("U")) == (6, 6)
        routes.wipe_write_perm("a")
        routes.put(MASTER, topic("T"), version=V2)
        assert (routes.perm("T"), routes.perm("U")) == (6, 4)
        assert routes.wipe_write_perm("nobody") == 0

    def test_delete_topic(self) -> None:
        routes = Routes()
        routes.put(MASTER, topic("T"), topic("U"))
        routes.put(OTHER._replace(cluster="D"), topic("T"))
        routes.delete_topic("T", "C")
        found = routes.route("T")
        assert found is not None
        assert [queue.broker_name for queue in found.queues] == ["b"]
        routes.delete_topic("T", "D")
        assert routes.topics() == ["U"]
        routes.delete_topic("U")
        routes.delete_topic("U")
        routes.delete_topic("U", "C")
        assert routes.topics() == []


BROKERS = [
    BrokerIdentity("C", name, number, f"{name}{number}:1", "h")
    for name in "ab"
    for number in (0, 1)
]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "bye", "delete", "delete in C", "silent"]),
            st.sampled_from(BROKERS),
            st.sets(st.sampled_from("TUV")),
        ),
        max_size=30,
    )
)
def test_the_pairs_of_topic_and_broker_are_counted(
    steps: list[tuple[str, BrokerIdentity, set[str]]],
) -> None:
    routes = Routes()
    for turn, (what, broker, topics) in enumerate(steps):
        table = [TopicConfig(topic) for topic in topics]
        if what == "put":
            expected = routes.pairs_with(broker.broker_name, {one.topic_name: one for one in table})
            routes.put(broker, *table, version=DataVersion(turn, turn))
            if broker.broker_id == 0:
                assert routes.pairs == expected
        elif what == "bye":
            routes.unregister(broker, routes.channel)
        elif what == "silent":
            routes.expire(1000.0)
        else:
            for topic in topics:
                routes.delete_topic(topic, "C" if what == "delete in C" else None)
        assert routes.pairs == sum(map(len, routes._topics.values()))


class TestGoodBye:
    """Nothing of a broker that left is known when one comes to its address."""

    def test_unregistered(self) -> None:
        routes = Routes()
        routes.put(MASTER, topic("T"), filters=["10.0.0.1:1"])
        found = routes.route("T")
        assert found is not None
        assert found.filter_servers == {"m:10911": ["10.0.0.1:1"]}
        assert routes.unregister(MASTER, routes.channel)
        assert routes.registrations() == {}
        assert routes.connection_lost(routes.channel) == []
        assert (routes.route("T"), routes.topics()) == (None, [])
        assert not routes.has_broker("a")
        assert routes.query_data_version("m:10911", V1, 1.0) == (True, None)
        assert routes.put(MASTER, topic("T")) == RegisterResult(True)
        again = routes.route("T")
        assert again is not None
        assert again.filter_servers == {}

    def test_expired_or_cut_off(self) -> None:
        for gone in ("expired", "cut off"):
            routes = Routes()
            routes.put(MASTER, topic("T"), filters=["10.0.0.1:1"])
            routes.put(OTHER, topic("T"), filters=["10.0.0.2:1"])
            if gone == "expired":
                assert len(routes.expire(120.5)) == 2
            else:
                assert routes.connection_lost(routes.channel) == ["m:10911", "o:10911"]
            assert routes.registrations() == {}
            routes.put(MASTER, topic("T"))
            routes.put(OTHER, topic("T"))
            found = routes.route("T")
            assert found is not None
            assert found.filter_servers == {}

    def test_filter_servers_are_replaced_kept_or_taken_away(self) -> None:
        """As the registration says: others, nothing of them, or that there are none."""
        routes = Routes()
        for filters, known in ((["x:1"], ["x:1"]), (None, ["x:1"]), (["y:1"], ["y:1"]), ([], None)):
            routes.put(MASTER, topic("T"), filters=filters)
            found = routes.route("T")
            assert found is not None
            assert found.filter_servers.get("m:10911") == known

    def test_a_slave_leaves_the_master_in_place(self) -> None:
        routes = Routes()
        routes.put(MASTER, topic("T"))
        routes.put(SLAVE)
        assert routes.unregister(SLAVE, routes.channel)
        found = routes.route("T")
        assert found is not None
        assert found.brokers[0].addresses == {0: "m:10911"}
