"""The keys that say who is who."""

import pytest

from rmq_ha.base.config.load import load_broker, load_namesrv, render
from rmq_ha.base.config.remote_change import local_reason
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError

HERE = Surroundings(
    environ={}, home="/home/u", host_name="box", address="10.1.2.3", directory="/work"
)


@pytest.mark.parametrize(
    "key", ["haAllowedSlaves", "dLegerPeerHosts", "dLegerOperatorHosts", "namesrvAllowedBrokers"]
)
def test_lists_are_addresses_and_networks(key: str) -> None:
    load_broker(f"{key}=10.0.0.7, 10.1.0.0/16,*", HERE)
    with pytest.raises(ConfigurationError, match=f"b:1: {key}=broker-a: 'broker-a' is neither"):
        load_broker(f"{key}=broker-a", HERE, name="b")


def test_a_name_server_checks_its_own() -> None:
    with pytest.raises(ConfigurationError, match="namesrvAllowedBrokers=x: 'x' is neither"):
        load_namesrv("namesrvAllowedBrokers=x", HERE)
    own = load_namesrv("aclEnable=true", HERE, name="etc/n.properties").configuration.namesrv
    assert own.acl_directory == "/work/etc"
    with pytest.raises(ConfigurationError, match="aclEnable=true: set aclDirectory"):
        load_namesrv("aclEnable=true", HERE)


def test_masters_may_have_names() -> None:
    load_broker("haTrustedMasters=broker-a-0.example, 10.0.0.0/8", HERE)
    with pytest.raises(ConfigurationError, match="haTrustedMasters=a:10912: 'a:10912' is neither"):
        load_broker("haTrustedMasters=a:10912", HERE)


def test_a_slave_that_signs_is_told_to_name_its_masters() -> None:
    text = "brokerRole=SLAVE\nbrokerId=1\nnamesrvAddr=h:9876\n"
    text += "aclAccessKey=a-broker\naclSecretKey=s3cr3ts3"
    (notice,) = load_broker(text, HERE).notices
    assert "without haTrustedMasters" in notice.text
    assert load_broker(f"{text}\nhaTrustedMasters=10.0.0.1", HERE).notices == []


def test_the_secret_is_long_and_never_shown() -> None:
    with pytest.raises(ConfigurationError, match=r"haSecret=\*\*\*: needs at least 16 characters"):
        load_broker("haSecret=short", HERE)
    with pytest.raises(ConfigurationError, match="haSecretRequired=true: haSecret is missing"):
        load_broker("haSecretRequired=true", HERE)
    text = "haSecret=correct horse battery\nhaSecretRequired=true"
    assert "haSecret=***" in render(load_broker(text, HERE).configuration)


def test_secrets_may_stand_in_a_file() -> None:
    text = "haSecretFile=secrets\nhaSecretRequired=true"
    own = load_broker(text, HERE).configuration.ours
    assert (own.ha_secret_file, own.ha_secret_required) == ("/work/secrets", True)
    with pytest.raises(ConfigurationError, match="haSecretFile=secrets: haSecret is set, too"):
        load_broker("haSecretFile=secrets\nhaSecret=correct horse battery", HERE)


def test_bounds_of_signed_times() -> None:
    for load in (load_broker, load_namesrv):
        load("aclSignedTimeWindow=86400\naclSignedSessions=1", HERE)
        for text in ("aclSignedTimeWindow=0", "aclSignedTimeWindow=86401", "aclSignedSessions=0"):
            with pytest.raises(ConfigurationError, match=text):
                load(text, HERE)


@pytest.mark.parametrize(
    "key",
    [
        "haAllowedSlaves",
        "haTrustedMasters",
        "haFirstOffsetMax",
        "haSecret",
        "haSecretRequired",
        "haSecretFile",
        "aclRequiresTls",
        "aclRequiresSignedTime",
        "aclSignedTimeWindow",
        "aclSignedSessions",
        "dLegerPeerHosts",
        "dLegerOperatorHosts",
        "namesrvAllowedBrokers",
        "namesrvBrokerTakeover",
        "namesrvLastRegistrationWins",
        "aclEnable",
        "aclDirectory",
        "embeddedNamesrvAddress",
    ],
)
def test_nobody_changes_them_from_afar(key: str) -> None:
    assert local_reason(key) is not None


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("journalPlugIn", "says which code runs"),
        ("tls.enable", "says who may connect"),
        ("audit.file", "belongs to a plugin"),
        ("slaveTimeout", None),
        (".slaveTimeout.", None),
    ],
)
def test_why_a_key_is_not_changed_from_afar(key: str, reason: str | None) -> None:
    """Nor is the first reason replaced by another."""
    assert local_reason(key) == reason
