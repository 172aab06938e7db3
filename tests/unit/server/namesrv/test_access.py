"""Who may register brokers at a name server, and who may change what it says."""

from typing import Any

import pytest
from twisted.logger import formatEvent

from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.errors import ConfigurationError, RequestRejected
from rmq_ha.base.model.networks import Networks
from rmq_ha.base.remoting.signing import Credentials, sign
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.ops.app.status.catalogue import CATALOGUE
from rmq_ha.ops.app.status.namesrv import NamesrvStatus
from rmq_ha.ops.app.status.samples import Samples
from rmq_ha.server.namesrv.access import OF_ADMINS, OF_BROKERS, BrokerAddresses, make_access
from rmq_ha.server.namesrv.namesrv import Namesrv
from rmq_ha.testing.host import SimHost, World

RULES = b"""
accounts:
- {accessKey: the-admin, secretKey: "12345678", admin: true}
- {accessKey: a-client, secretKey: "12345678", defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}
"""
HERE, THERE = "10.0.0.1:4000", "10.0.0.66:4000"
OF_CLIENTS = (105, 106, 206, 224, 304)


@pytest.fixture
def host() -> SimHost:
    made = World(1).add("namesrv")
    made.disk.replace("/conf/plain_acl.yml", RULES)
    return made


def outcome(check: object, request: RemotingCommand, remote: str) -> int:
    """The code that it is refused with; 0: it passes."""
    try:
        check.validate(request, remote)  # type: ignore[attr-defined]
    except RequestRejected as refusal:
        return int(refusal.code)
    return 0


def test_brokers_come_from_allowed_addresses_only(host: SimHost) -> None:
    check = BrokerAddresses(host.seams, Networks("10.0.0.0/28"))
    for code in OF_BROKERS:
        assert outcome(check, RemotingCommand(code), HERE) == 0
        assert outcome(check, RemotingCommand(code), THERE) == ResponseCode.NO_PERMISSION
    for code in (*OF_ADMINS, *OF_CLIENTS):
        assert outcome(check, RemotingCommand(code), THERE) == 0
    assert check.refused == len(OF_BROKERS)
    with pytest.raises(RequestRejected, match="add it to namesrvAllowedBrokers"):
        check.validate(RemotingCommand(103, ext={"brokerName": "a\n"}), THERE)


def test_who_is_refused_is_told_once(host: SimHost, logged: list[Any]) -> None:
    check = BrokerAddresses(host.seams, Networks("10.0.0.0/28"))
    for _ in range(3):
        outcome(check, RemotingCommand(103, ext={"brokerName": "a"}), THERE)
    (line,) = [formatEvent(event) for event in logged]
    assert line.startswith("10.0.0.66:4000 refused, which speaks for broker 'a': it is not in ")


def test_changed_rules_are_in_force_soon_until_the_server_stops() -> None:
    """A secret that leaked is taken back without a restart."""
    world = World(1)
    host = world.add("namesrv")
    host.disk.replace("/conf/plain_acl.yml", RULES)
    config = NamesrvConfig(acl_enable=True, acl_directory="/conf", kv_config_path="/kv")
    server = Namesrv(host.seams, config, NettyServerConfig(listen_port=9876))
    server.start()
    world.clock.run_for(1)
    leaked, new = (
        sign(RemotingCommand(318), Credentials("the-admin", secret))
        for secret in ("12345678", "87654321")
    )
    assert [outcome(server.access, item, THERE) for item in (leaked, new)] == [0, 1]
    host.disk.replace("/conf/plain_acl.yml", RULES.replace(b"12345678", b"87654321"))
    world.clock.run_for(3)
    assert [outcome(server.access, item, THERE) for item in (leaked, new)] == [1, 0]
    server.stop()
    world.clock.run_for(1)
    assert host.clock.getDelayedCalls() == []


def test_rules_that_nobody_could_follow_stop_the_start(host: SimHost) -> None:
    config = NamesrvConfig(acl_enable=True, acl_directory="/conf", acl_requires_tls=True)
    with pytest.raises(ConfigurationError, match="aclRequiresTls=true without TLS here"):
        Namesrv(host.seams, config, NettyServerConfig(), tls={"tls.server.mode": "disabled"})


def test_by_default_everybody_is_a_broker(host: SimHost) -> None:
    assert outcome(BrokerAddresses(host.seams, Networks()), RemotingCommand(103), THERE) == 0


@pytest.mark.parametrize("allowed", ["", "10.0.0.0/28"])
def test_what_changes_anything_is_signed_by_an_administrator(host: SimHost, allowed: str) -> None:
    """Registrations, too, unless addresses tell brokers: Java's cannot sign."""
    config = NamesrvConfig(acl_enable=True, acl_directory="/conf")
    check = make_access(host.seams, config, Networks(allowed))
    assert check is not None
    guarded = OF_ADMINS if allowed else OF_ADMINS | OF_BROKERS
    for code in (*OF_ADMINS, *OF_BROKERS, *OF_CLIENTS):
        plain = RemotingCommand(code, ext={"topic": "T"})
        wrong = sign(plain, Credentials("the-admin", "87654321"))
        client = sign(plain, Credentials("a-client", "12345678"))
        admin = sign(plain, Credentials("the-admin", "12345678"))
        refused = [bool(outcome(check, item, THERE)) for item in (plain, wrong, client)]
        assert refused == [code in guarded] * 3, code
        assert outcome(check, admin, THERE) == 0


def test_acl_is_off_unless_asked_for_and_never_without_files(host: SimHost) -> None:
    assert make_access(host.seams, NamesrvConfig(), Networks()) is None
    for directory in (None, "/nowhere"):
        config = NamesrvConfig(acl_enable=True, acl_directory=directory)
        with pytest.raises(ConfigurationError):
            make_access(host.seams, config, Networks())


def test_refusals_are_counted_by_reason(host: SimHost) -> None:
    config = NamesrvConfig(acl_enable=True, acl_directory="/conf")
    namesrv = Namesrv(host.seams, config, NettyServerConfig())
    assert namesrv.access is not None
    assert outcome(namesrv.access, RemotingCommand(318), THERE) == 1
    status = NamesrvStatus(host.seams, namesrv)
    samples = Samples(CATALOGUE, status.constants())
    status.collect(samples)
    found = {
        (sample.name, sample.labels.get("reason")): sample.value
        for family in samples.families()
        for sample in family.samples
    }
    assert found["rmqha_namesrv_acl_refused_total", "unsigned"] == 1
    assert found["rmqha_namesrv_acl_refused_total", "replay"] == 0
    assert found["rmqha_namesrv_acl_previous_secret_total", None] == 0
    assert found["rmqha_namesrv_acl_odd_times_total", None] == 0
