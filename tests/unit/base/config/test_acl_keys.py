"""The keys of access control."""

import pytest

from rmq_ha.base.config.load import load_broker, render, render_changed
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError

HERE = Surroundings(
    environ={}, home="/home/u", host_name="box", address="10.1.2.3", directory="/work"
)
WITH_HOME = Surroundings(
    environ={"ROCKETMQ_HOME": "/opt/rocketmq"},
    home="/home/u",
    host_name="box",
    address="10.1.2.3",
    directory="/work",
)


@pytest.mark.parametrize(
    ("text", "surroundings", "directory"),
    [
        ("aclEnable=true", HERE, "/work/etc"),
        ("aclEnable=true\naclDirectory=acls", HERE, "/work/acls"),
        ("aclEnable=true\naclDirectory=/etc/acls", WITH_HOME, "/etc/acls"),
        ("aclEnable=true", WITH_HOME, "/opt/rocketmq/conf"),
        ("aclEnable=true\nrocketmqHome=/srv/mq", WITH_HOME, "/srv/mq/conf"),
        ("aclPlugIn=plain", HERE, "/work/etc"),
        ("aclEnable=true\naclPlugIn=acme, plain", HERE, "/work/etc"),
        ("aclEnable=true\naclPlugIn=acme", HERE, None),
        ("", WITH_HOME, None),
    ],
)
def test_where_the_files_are(text: str, surroundings: Surroundings, directory: str | None) -> None:
    ours = load_broker(text, surroundings, name="etc/b.properties").configuration.ours
    assert ours.acl_directory == directory


def test_acl_enable_chooses_the_plain_access_control() -> None:
    ours = load_broker("aclEnable=true", HERE, name="b.properties").configuration.ours
    assert ours.acl_plug_in == "plain"
    assert ours.acl_strict
    assert load_broker("", HERE).configuration.ours.acl_plug_in == ""
    chosen = load_broker("aclEnable=true\naclPlugIn=acme", HERE, name="b").configuration.ours
    assert chosen.acl_plug_in == "acme"


def test_without_a_file_and_a_home_the_directory_must_be_named() -> None:
    with pytest.raises(ConfigurationError, match="set aclDirectory"):
        load_broker("aclEnable=true", HERE)


def test_a_key_needs_its_secret_and_no_message_shows_it() -> None:
    with pytest.raises(ConfigurationError, match=r"b:1: aclAccessKey=someaccount: .* each other"):
        load_broker("aclAccessKey=someaccount", HERE, name="b")
    with pytest.raises(ConfigurationError, match=r"b:1: aclSecretKey=\*\*\*: .* each other"):
        load_broker("aclSecretKey=s3cr3ts3cr3t", HERE, name="b")


def test_the_secret_is_never_shown() -> None:
    text = "aclAccessKey=someaccount\naclSecretKey=s3cr3ts3cr3t"
    configuration = load_broker(text, HERE).configuration
    assert configuration.ours.acl_secret_key == "s3cr3ts3cr3t"
    for lines in (render(configuration), render_changed(configuration)):
        assert "aclSecretKey=***" in lines
        assert "s3cr3ts3cr3t" not in "".join(lines)
    assert "aclSecretKey=" in render(load_broker("", HERE).configuration)
    assert "s3cr3ts3cr3t" not in repr(configuration.ours)
