"""A broker's metrics and health, scraped from simulated brokers."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from twisted.logger import capturedLogs, formatEvent

from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.store_flags import Flag
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import pull_request
from rmq_ha.ops.app.journals.classic import collect_replication
from rmq_ha.ops.app.status.broker import BrokerStatus
from rmq_ha.ops.app.status.catalogue import CATALOGUE
from rmq_ha.ops.app.status.server import SubjectCollector
from rmq_ha.ops.app.status.slaves import slave_names
from rmq_ha.server.broker.broker import Broker
from rmq_ha.server.replication.statistics import ReplicationStatistics, SlaveStatistics
from rmq_ha.testing.cluster import HA_PORT, small_configuration
from rmq_ha.testing.host import World
from tests.kits.scrapes import scraped
from tests.unit.server.broker.sim_broker import TOPIC, SimBroker
from tests.unit.server.broker.sim_client import SimClient

OTHERS = ("rmqha_acl_", "rmqha_controller_", "rmqha_dledger_", "rmqha_namesrv_", "rmqha_reactor_")
"""What is told of other servers, and of brokers that have such parts."""
WHERE_THERE_IS_ANY = {
    "rmqha_build_info",
    "rmqha_certificate_end_seconds",
    "rmqha_connection_places",
    "rmqha_delayed_messages",
    "rmqha_grpc_answers_total",
    "rmqha_grpc_clients",
    "rmqha_grpc_closed_total",
    "rmqha_held_pops",
    "rmqha_kernel_faults_total",
    "rmqha_negative_answers_total",
    "rmqha_half_message_age_seconds",
    "rmqha_half_messages",
    "rmqha_open_connections",
    "rmqha_pop_acks_total",
    "rmqha_pop_changes_total",
    "rmqha_pop_dead_letters_total",
    "rmqha_pop_dropped_total",
    "rmqha_pop_group_dead_letters_total",
    "rmqha_pop_group_messages_out",
    "rmqha_pop_group_oldest_seconds",
    "rmqha_pop_group_redeliveries_total",
    "rmqha_pop_group_retries_total",
    "rmqha_pop_journal_behind_bytes",
    "rmqha_pop_messages_out",
    "rmqha_pop_messages_total",
    "rmqha_pop_retries_total",
    "rmqha_pop_stale_acks_total",
    "rmqha_refused_connections_total",
    "rmqha_tier_failing",
    "rmqha_tier_read_bytes_total",
    "rmqha_tier_size_bytes",
    "rmqha_tier_waiting_bytes",
    "rmqha_timer_messages",
    "rmqha_timer_overdue_seconds",
    *(
        f"rocketmq_brokeruntime_{name}_tps{seconds}"
        for name in ("getfound", "getmiss", "gettransfered", "put")
        for seconds in (60, 600)
    ),
    "rocketmq_consumer_connections",
    "rocketmq_consumer_lag_messages",
    "rocketmq_group_diff",
    "rocketmq_group_retrydiff",
    "rocketmq_producer_connections",
    "rocketmq_send_back_nums",
    "rocketmq_storage_message_reserve_time",
    "rocketmq_topic_dlq_offset",
    "rocketmq_topic_retry_offset",
}
COUNTED = {
    "rmqha_set_aside_bytes_total": "store.statistics.set_aside_bytes",
    "rmqha_set_aside_messages_total": "store.statistics.set_aside_messages",
    "rmqha_damaged_messages_total": "store.damage.lost",
    "rmqha_mended_units_total": "store.damage.mended",
    "rmqha_forced_deletions_total": "store.cleaner.forced_deletions",
    "rmqha_registration_failures_total": "registration.failures",
    "rmqha_puts_waiting": "store.statistics.outcomes.waiting",
    "rmqha_duplicate_sends_total": "store.statistics.outcomes.known",
    "rmqha_put_off_requests_total": "main_server.turns.put_off",
    "rmqha_forwarded_requests_total": "forwarding.forwarded",
    "rmqha_refused_offsets_total": "client_offsets.refused",
    "rocketmq_broker_permission": "configuration.broker.broker_permission",
}
"""Of the broker, by the metric that tells it."""

Scrape = dict[str, dict[frozenset[tuple[str, str]], float]]


def scrape(subject: Any) -> Scrape:
    """Samples by name and labels, as Prometheus reads them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SubjectCollector(subject))
    found: Scrape = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            assert labels not in found.setdefault(sample.name, {}), "a series twice"
            found[sample.name][labels] = sample.value
    return found


def value(found: Scrape, name: str, **labels: str) -> float:
    """The one sample with at least these labels."""
    wanted = set(labels.items())
    values = [item for key, item in found[name].items() if wanted <= key]
    assert len(values) == 1, f"{name}{labels}: {found[name]}"
    return values[0]


class Pair:
    """A SYNC_MASTER and its slave, each a whole broker."""

    def __init__(self) -> None:
        self.master = SimBroker()
        self.master.configuration.store.broker_role = BrokerRole.SYNC_MASTER
        self.master.start()
        self.slave_host = self.master.world.add("slave")
        configuration = small_configuration(
            self.slave_host.ip, BrokerRole.SLAVE, FlushDiskType.ASYNC_FLUSH, 1
        )
        configuration.store.ha_master_address = f"{self.master.host.ip}:{HA_PORT}"
        self.slave = Broker(self.slave_host.seams, configuration)
        self.master.wait(self.slave.start())
        self.of_master = BrokerStatus(self.master.broker)
        self.of_slave = BrokerStatus(self.slave)
        self.pass_time(1)

    def pass_time(self, seconds: float) -> None:
        clock = self.master.world.clock
        end = clock.seconds() + seconds
        clock.run_while(lambda: clock.seconds() < end, seconds)


def test_every_sample_is_in_the_catalogue_with_its_labels() -> None:
    pair = Pair()
    pair.master.send()
    pair.master.pull()
    for status in (pair.of_master, pair.of_slave):
        for name, series in scrape(status).items():
            base = name
            for suffix in ("_bucket", "_count", "_sum"):
                if base not in CATALOGUE:
                    base = name.removesuffix(suffix)
            for labels in series:
                names = {label for label, _ in labels} - {"le"}
                assert names == set(CATALOGUE[base].labels), name


def test_every_number_of_a_pair_is_told() -> None:
    """One that is left out is a line of a dashboard that stands still; nobody misses it."""
    pair = Pair()
    for _ in range(2):
        pair.master.send()
        pair.master.pull()
        pair.pass_time(12)
    seen = {*scrape(pair.of_master), *scrape(pair.of_slave)}
    told = {name for name in CATALOGUE if seen & {name, f"{name}_count"}}
    left = {name for name in CATALOGUE.keys() - told if not name.startswith(OTHERS)}
    assert left == WHERE_THERE_IS_ANY


@pytest.mark.parametrize("name", COUNTED)
def test_a_number_is_told_as_it_is_counted(name: str) -> None:
    broker = SimBroker().start()
    *way, last = COUNTED[name].split(".")
    counted: Any = broker.broker
    for part in way:
        counted = getattr(counted, part)
    setattr(counted, last, 17)
    assert value(scrape(BrokerStatus(broker.broker)), name) == 17


def test_what_slaves_were_refused_is_told() -> None:
    told = ReplicationStatistics(
        different=2,
        within_record=3,
        refused=4,
        turned_away=5,
        refused_ahead=["a", "b", "c", "d", "e", "f"],
        unacknowledged=7,
        unacknowledged_seconds=8,
    )
    rows = scraped(lambda samples: collect_replication(samples, told, is_slave=False))
    found = {name: row[0][1] for name, row in rows.items()}
    names = {
        "diverged": 2, "within_record": 3, "refused": 4, "turned_away": 5, "refused_ahead": 6,
        "unacknowledged_bytes": 7, "unacknowledged_seconds": 8, "slaves": 0, "stranded": 0,
    }  # fmt: skip
    assert {f"rmqha_replication_{name}": count for name, count in names.items()} == {
        name: count for name, count in found.items() if name != "rmqha_connections"
    }
    assert found["rmqha_connections"] == 0


def test_the_oldest_message_is_as_old_as_it_is() -> None:
    broker = SimBroker()
    broker.configuration.store.max_message_size = 16  # else the log is too short to be asked
    broker.start()
    broker.send(b"x")
    broker.world.clock.run_for(20)
    status = BrokerStatus(broker.broker)
    age = value(scrape(status), "rocketmq_storage_message_reserve_time")
    assert 20_000 <= age < 21_000


def test_puts_and_pulls_are_counted_by_topic_and_group() -> None:
    broker = SimBroker().start()
    status = BrokerStatus(broker.broker)
    for _ in range(3):
        broker.send()
    broker.pull()
    found = scrape(status)
    assert value(found, "rocketmq_messages_in_total", topic=TOPIC) == 3
    for way in ("in", "out"):
        size = value(found, f"rocketmq_throughput_{way}_total", topic=TOPIC)
        assert size == broker.broker.store.log.max_offset
    assert value(found, "rocketmq_messages_out_total", topic=TOPIC, consumer_group="consumers") == 3
    assert value(found, "rocketmq_producer_offset", topic=TOPIC) == 3
    assert value(found, "rmqha_put_seconds_count") == 3
    assert value(found, "rmqha_put_seconds_bucket", le="+Inf") == 3
    assert value(found, "rocketmq_brokeruntime_putmessage_times_total") == 3
    end = broker.broker.store.log.max_offset
    assert value(found, "rmqha_log_offset_bytes", which="max") == end
    assert value(found, "rocketmq_storage_size") == end


def test_a_groups_lag_is_what_it_has_not_committed() -> None:
    broker = SimBroker().start()
    status = BrokerStatus(broker.broker)
    for _ in range(5):
        broker.send()
    broker.broker.consumer_offsets.commit("consumers", TOPIC, 0, 2)
    broker.broker.consumer_offsets.commit("ahead", TOPIC, 0, 9)
    found = scrape(status)
    assert value(found, "rocketmq_consumer_lag_messages", consumer_group="consumers") == 3
    assert value(found, "rocketmq_consumer_lag_messages", consumer_group="ahead") == 0
    assert value(found, "rocketmq_group_diff", group="consumers", countOfOnlineConsumers="0") == 3


def test_series_are_bounded_whatever_the_users_do() -> None:
    broker = SimBroker()
    broker.configuration.ours.metrics_series_limit = 4
    broker.start()
    inner = broker.broker
    status = BrokerStatus(inner)
    for number in range(2000):
        inner.consumer_offsets.commit(f"g{number}", TOPIC, 0, number)
        inner.stats.put(f"t{number}", 0, number, number)
        inner.stats.count_pull(f"t{number}", 0, f"g{number}", number, number)
    broker.send()
    for _ in range(5):
        found = scrape(status)
    for name, series in found.items():
        if name.startswith("rocketmq_") and "brokeruntime" not in name:
            assert len(series) <= 4, name
    assert value(found, "rocketmq_messages_in_total", topic="t1999") == 1999
    assert value(found, "rmqha_series_left_out", of="groups") == 1996


def test_held_pulls_and_connections() -> None:
    broker = SimBroker().start()
    status = BrokerStatus(broker.broker)
    broker.ask(pull_request("consumers", TOPIC, 0, 0, hold_ms=5000))
    broker.world.clock.run_while(lambda: not len(broker.broker.hold), 5)
    found = scrape(status)
    assert value(found, "rmqha_held_pulls") == 1
    assert value(found, "rmqha_connections", port="main") == 1
    assert value(found, "rmqha_connections_accepted_total", port="main") == 1


def test_negative_answers_are_counted_by_code() -> None:
    broker = SimBroker().start()
    broker.call(pull_request("consumers", "no-such-topic", 0, 0))
    client = SimClient(broker)
    for code in range(1000, 1100):  # what a client answers is passed on, whatever it is
        client.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = RemotingCommand(code)
        asked = {"consumerGroup": "g", "clientId": "c1"}
        broker.call(RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, asked))
    found = scrape(BrokerStatus(broker.broker))
    assert value(found, "rmqha_negative_answers_total", code="TOPIC_NOT_EXIST") == 1
    assert value(found, "rmqha_negative_answers_total", code="(other)") == 100


def test_replication_lag_grows_while_the_slave_is_gone_and_is_gone_after() -> None:
    pair = Pair()
    pair.master.send()
    pair.pass_time(0.1)
    found = scrape(pair.of_master)
    assert value(found, "rmqha_replication_slaves") == 1
    assert value(found, "rmqha_replication_lag_bytes") == 0
    assert value(found, "rmqha_replication_lag_seconds") == 0
    assert value(found, "rmqha_replication_unacknowledged_bytes") == 0
    assert value(found, "rmqha_replica_wait_seconds_count") == 1
    assert pair.of_master.health().line() == "ready: SYNC_MASTER broker-a: 1 slaves\n"
    pair.slave_host.crash(silent=True)
    pair.master.send()
    pair.pass_time(2)
    found = scrape(pair.of_master)
    assert value(found, "rmqha_replication_lag_bytes") > 0
    assert value(found, "rmqha_replication_lag_seconds") >= 2
    reason = "FLUSH_SLAVE_TIMEOUT"
    assert value(found, "rmqha_degraded_acks_total", reason=reason) == 1
    pair.pass_time(30)
    pair.master.send()
    found = scrape(pair.of_master)
    assert value(found, "rmqha_replication_slaves") == 0
    assert "rmqha_replication_lag_bytes" not in found, "a series of a slave that is gone"
    assert value(found, "rmqha_replication_unacknowledged_bytes") > 0
    assert value(found, "rmqha_replication_unacknowledged_seconds") > 30
    assert value(found, "rmqha_degraded_acks_total", reason="SLAVE_NOT_AVAILABLE") == 1
    assert "SLAVE_NOT_AVAILABLE" in pair.of_master.health().reason


def test_a_slave_says_how_old_its_copies_are() -> None:
    pair = Pair()
    pair.slave.slave_synchronize.set_master_address(f"{pair.master.host.ip}:10911")
    found = scrape(pair.of_slave)
    assert value(found, "rmqha_slave_sync_age_seconds", table="topics") >= 1, "since the start"
    pair.pass_time(5)
    found = scrape(pair.of_slave)
    for table in ("topics", "consumer_offsets", "delay_offsets", "groups"):
        assert value(found, "rmqha_slave_sync_age_seconds", table=table) <= 3
        assert value(found, "rmqha_slave_sync_failures_total", table=table) == 0
    assert value(found, "rmqha_slave_following") == 1
    assert value(found, "rmqha_store_writable") == 0
    assert value(found, "rmqha_broker_ready") == 1
    assert value(found, "rmqha_broker_info", role="SLAVE") == 1
    assert pair.of_slave.health().line().startswith("ready: SLAVE broker-a: following")


def test_a_broker_that_takes_no_puts_is_not_ready_and_says_why() -> None:
    broker = SimBroker().start()
    status = BrokerStatus(broker.broker)
    assert status.health().is_ready
    broker.broker.store.flags.hoist(Flag.DISK_FULL, "the commit log's disk is 95% full")
    health = status.health()
    assert not health.is_ready
    assert "95% full" in health.line()
    broker.broker.store.flags.lower(Flag.DISK_FULL)
    broker.configuration.broker.broker_permission = 4
    assert status.health().is_ready
    assert "writing is off" in status.health().reason
    broker.stop()
    assert not status.health().is_ready


def test_two_brokers_of_one_process_do_not_share_anything() -> None:
    one, other = SimBroker(1).start(), SimBroker(2).start()
    one.send()
    assert value(scrape(BrokerStatus(one.broker)), "rmqha_put_seconds_count") == 1
    assert value(scrape(BrokerStatus(other.broker)), "rmqha_put_seconds_count") == 0


def test_a_slave_that_connects_anew_goes_on_with_its_series() -> None:
    pair = Pair()
    machine = pair.slave_host.ip
    before = scrape(pair.of_master)["rmqha_replication_acked_bytes"].keys()
    (connection,) = pair.master.broker.journal.service.statistics().slaves
    pair.slave.journal.service._link.connection.close()  # type: ignore[union-attr]
    pair.pass_time(3)
    (anew,) = pair.master.broker.journal.service.statistics().slaves
    assert anew.address != connection.address
    assert scrape(pair.of_master)["rmqha_replication_acked_bytes"].keys() == before
    assert {dict(labels)["slave"] for labels in before} == {machine}


def test_slaves_of_one_machine_are_told_apart() -> None:
    addresses = ["10.0.0.2:5000", "10.0.0.3:5000", "10.0.0.2:5001", "[::1]:7"]
    slaves = [
        SlaveStatistics(address=address, stage="caught up", requested=0, acked=0, lag=0)
        for address in addresses
    ]
    names = slave_names(slaves)
    assert names == ["10.0.0.2", "10.0.0.3", "10.0.0.2#2", "::1"]


def test_a_slave_without_a_master_says_so_and_for_how_long() -> None:
    """A wrong brokerName made a replica that was empty and healthy for ever."""
    world = World(1)
    host = world.add("slave")
    configuration = small_configuration(host.ip, BrokerRole.SLAVE, FlushDiskType.ASYNC_FLUSH, 1)
    configuration.broker.broker_name = "broker-x"
    configuration.ours.slave_alone_seconds = 90
    inner = Broker(host.seams, configuration)
    status = BrokerStatus(inner)
    with capturedLogs() as logged:
        started = inner.start()
        world.clock.run_while(lambda: not started.called, 30)
        begin = world.clock.seconds()
        world.clock.run_while(lambda: world.clock.seconds() < begin + 70, 71)
        assert 69 < value(scrape(status), "rmqha_slave_alone_seconds") < 72
        assert status.health().is_ready
        assert "does not follow a master for 7" in status.health().reason
        world.clock.run_while(lambda: world.clock.seconds() < begin + 95, 96)
    lines = [formatEvent(event) for event in logged]
    (line,) = [line for line in lines if "follows nobody" in line]
    assert line.startswith("this slave follows nobody since 60 s: no name server knows a master of")
    assert "brokerName=broker-x: is that name right?" in line
    assert not status.health().is_ready
    assert status.health().reason.endswith("(no address); slaveAloneSeconds=90")


def test_a_slave_that_follows_is_not_alone() -> None:
    pair = Pair()
    pair.master.send()
    pair.pass_time(6)
    assert value(scrape(pair.of_slave), "rmqha_slave_alone_seconds") == 0
    pair.master.host.crash(silent=False)
    pair.pass_time(61)
    assert 55 < value(scrape(pair.of_slave), "rmqha_slave_alone_seconds") <= 61


def test_a_slave_tells_how_far_its_master_delivered() -> None:
    """Nothing before it has copied that."""
    broker = SimBroker()
    broker.configuration.store.broker_role = BrokerRole.SLAVE
    broker.configuration.broker.broker_id = 1
    broker.start()
    assert broker.broker.delay_offset_table() == {}
    broker.broker.delay_offsets.keep(b'{"offsetTable":{1:3,3:4}}')
    assert broker.broker.delay_offset_table() == {1: 3, 3: 4}
    broker.stop()


def test_what_waits_in_a_level_that_delivered_nothing_yet_is_told() -> None:
    """One message waits for two hours: its master says so, also after another level delivered."""
    pair = Pair()
    pair.master.call(pair.master.message(b"later", DELAY="18"))
    pair.pass_time(6)
    found = scrape(pair.of_master)
    assert value(found, "rmqha_delayed_messages", level="18") == 1
    assert len(found["rmqha_delayed_messages"]) == 1
    pair.master.call(pair.master.message(b"soon", DELAY="1"))
    pair.pass_time(3)
    found = scrape(pair.of_master)
    assert value(found, "rmqha_delayed_messages", level="1") == 0
    assert value(found, "rmqha_delayed_messages", level="18") == 1
