"""Metrics and health of whole DLedger members, scraped from a simulated group."""

from rmq_ha.ops.app.status.broker import BrokerStatus
from rmq_ha.ops.app.status.catalogue import CATALOGUE
from rmq_ha.ops.app.status.samples import Samples
from rmq_ha.testing.brokers import BrokerNode
from tests.sim_kit.group import BrokerGroup

Told = dict[tuple[str, str], float]


def scrape(status: BrokerStatus) -> Told:
    """Values by name and last label."""
    samples = Samples(CATALOGUE, status.constants())
    status.collect(samples)
    return {
        (sample.name, list(sample.labels.values())[-1]): sample.value
        for family in samples.families()
        for sample in family.samples
    }


def status_of(member: BrokerNode) -> BrokerStatus:
    return BrokerStatus(member.broker)


def test_a_group_tells_who_leads_and_who_is_behind() -> None:
    group = BrokerGroup(3).start()
    for number in range(5):
        assert group.send(b"%d" % number) == 0
    group.run(3)
    leader = group.master()
    assert leader is not None
    found = scrape(status_of(leader))
    name = leader.host.name
    names = {one.host.name for one in group.members}
    assert [found["rmqha_dledger_lag_bytes", other] for other in names - {name}] == [0, 0]
    assert found["rmqha_dledger_index", "committed"] == found["rmqha_dledger_index", "end"] >= 4
    assert found["rmqha_dledger_elections_total", "0"] == 0
    assert not [key for key, _ in found if key.startswith(("rmqha_replication", "rmqha_slave"))]
    assert f"{name} of group" in status_of(leader).health().line()
    assert status_of(leader).health().line().endswith("leads\n")
    terms = set()
    for follower in group.slaves():
        told = scrape(status_of(follower))
        terms |= {told[key] for key in told if key[0] == "rmqha_dledger_term"}
        assert status_of(follower).health().line().endswith(f"follows {name}\n")
        assert not [key for key, _ in told if key.startswith("rmqha_dledger_lag")]
        assert not [key for key, _ in told if key == "rmqha_slave_following"]
        assert [key for key, _ in told if key == "rmqha_slave_sync_age_seconds"]
    assert terms == {found["rmqha_dledger_term", "0"]}


def test_a_member_that_is_gone_is_behind_and_a_dead_leader_costs_an_election() -> None:
    group = BrokerGroup(4).start()
    leader = group.master()
    assert leader is not None
    gone = group.slaves()[0]
    group.kill(gone)
    for number in range(5):
        assert group.send(b"%d" % number) == 0
    found = scrape(status_of(leader))
    assert found["rmqha_dledger_lag_entries", gone.host.name] >= 5
    assert found["rmqha_dledger_lag_bytes", gone.host.name] > 500
    group.boot(gone)
    group.run(12)
    group.kill(leader)
    group.run(1)
    group.wait_until(lambda: group.master() not in (None, leader))
    assert group.slaves()
    for member in [*group.slaves(), group.wait_for_master()]:
        told = scrape(status_of(member))
        (elections,) = [told[key] for key in told if key[0] == "rmqha_dledger_elections_total"]
        assert elections >= 1
