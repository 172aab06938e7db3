"""The start rules of DLedger mode. Spec: dledger.md, chapter 1."""

import pytest

from rmq_ha.base.config.load import LoadedBroker, load_broker
from rmq_ha.base.config.plans import embeds_namesrv, port_plan
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.status import BrokerRole

HERE = Surroundings(
    environ={}, home="/home/u", host_name="box", address="10.1.2.3", directory="/work"
)
GROUP = {
    "namesrvAddr": "ns:9876",
    "enableDLegerCommitLog": "true",
    "dLegerGroup": "g",
    "dLegerPeers": "n0-10.1.2.3:40911;n1-b:40911;n2-c:40911",
    "dLegerSelfId": "n0",
}


def load(**changes: str | None) -> LoadedBroker:
    wanted = {key: value for key, value in {**GROUP, **changes}.items() if value is not None}
    text = "".join(f"{key}={value}\n" for key, value in wanted.items())
    return load_broker(text, HERE, name="b.properties")


def test_a_member_is_undecided_until_the_election() -> None:
    """Spec: dledger.md, section 16.1."""
    configuration, notices = load()
    assert notices == []
    assert configuration.broker.broker_id == -1
    assert configuration.store.broker_role is BrokerRole.ASYNC_MASTER


def test_what_the_election_decides_is_noted_where_somebody_says_it() -> None:
    notices = load(brokerRole="SLAVE", brokerId="1", haMasterAddress="10.0.0.1:10912").notices
    found = " ".join(notice.text for notice in notices)
    for key in ("brokerRole", "brokerId", "haMasterAddress"):
        assert f"{key} has no effect" in found


def test_the_port_plan_has_the_own_entry_and_no_replication_port() -> None:
    configuration = load(listenPort="20010").configuration
    assert [port for port, _ in port_plan(configuration)] == [20010, 20008, 40911]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dLegerGroup": None}, "enableDLegerCommitLog=true: dLegerGroup is missing"),
        ({"dLegerPeers": None}, "enableDLegerCommitLog=true: dLegerPeers is missing"),
        ({"dLegerSelfId": None}, "enableDLegerCommitLog=true: dLegerSelfId is missing"),
        ({"dLegerSelfId": "n7"}, "dLegerSelfId=n7: is not in dLegerPeers, which has n0, n1, n2"),
        ({"dLegerPeers": "n0-a:1;n0-b:1"}, "n0 comes twice"),
        ({"dLegerPeers": "n0-a:1;xx-b:1"}, "'xx-b:1' is not of the form n0-host:port"),
        ({"preferredLeaderId": "n1;n9"}, "preferredLeaderId=n1;n9: n9 is not in dLegerPeers"),
        ({"listenPort": "40911"}, "the own entry's port 40911 is for clients (listenPort)"),
        ({"listenPort": "40913"}, "40911 is for clients' fast port"),
        ({"metricsPort": "40911"}, "metricsPort=40911: this port is for the DLedger group's"),
    ],
)
def test_what_does_not_fit_stops_the_start(changes: dict[str, str | None], reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(**changes)
    assert str(caught.value).startswith("b.properties:")
    assert reason in str(caught.value)


def test_what_an_election_overwrites_is_told() -> None:
    found = [notice.text for notice in load(brokerRole="SLAVE", brokerId="3").notices]
    assert [text.split(": ")[1] for text in found] == [
        "brokerRole has no effect",
        "brokerId has no effect",
    ]


def test_a_member_runs_no_name_server_of_its_own() -> None:
    configuration, notices = load(namesrvAddr=None)
    assert not embeds_namesrv(configuration)
    assert "no client finds this DLedger group" in notices[0].text


def test_without_the_mode_its_keys_have_no_effect() -> None:
    found = load(enableDLegerCommitLog="false").notices
    assert len(found) == 3
    assert "dLegerGroup has no effect without enableDLegerCommitLog=true" in found[0].text


def test_data_directories_are_absolute() -> None:
    store = load(storePathDLedgerCommitLog="a, /b").configuration.store
    assert store.store_path_dledger_commit_log == "/work/a,/b"
