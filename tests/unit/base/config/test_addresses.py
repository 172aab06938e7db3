"""Host names where addresses belong, and lists of name servers as nobody reads them."""

from dataclasses import replace

import pytest

from rmq_ha.base.config.load import load_broker, load_namesrv
from rmq_ha.base.config.load_controller import load_controller
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError

HERE = Surroundings({}, "/home/u", "h", "10.0.0.1", "/run")
DNS = replace(HERE, resolve={"broker-a": "10.0.0.7", "localhost": "127.0.0.1"}.get)
TWO = replace(HERE, resolve={"inside": "10.0.0.7", "outside": "10.0.0.9"}.get)


def test_a_name_becomes_its_address_and_is_told() -> None:
    text = "bindAddress=localhost\nbrokerIP1=broker-a\nbrokerIP2=10.0.0.8\nmetricsAddress=::1\n"
    configuration, notices = load_broker(text, DNS, name="b")
    assert configuration.ours.bind_address == "127.0.0.1"
    assert configuration.broker.broker_ip1 == "10.0.0.7"
    assert configuration.broker.broker_ip2 == "10.0.0.8"
    assert configuration.ours.metrics_address == "::1"
    assert [notice.text for notice in notices if "becomes" in notice.text] == [
        "b:2: brokerIP1=broker-a becomes 10.0.0.7",
        "b:1: bindAddress=localhost becomes 127.0.0.1",
    ]


def test_each_name_becomes_its_own_address() -> None:
    found = load_broker("brokerIP1=outside\nbrokerIP2=inside\nmetricsAddress=inside\n", TWO)
    broker, ours = found.configuration.broker, found.configuration.ours
    assert (broker.broker_ip1, broker.broker_ip2) == ("10.0.0.9", "10.0.0.7")
    assert ours.metrics_address == "10.0.0.7"
    assert len([notice for notice in found.notices if "becomes" in notice.text]) == 3


def test_what_is_not_set_follows_the_address_that_a_name_stands_for() -> None:
    broker = load_broker("bindAddress=localhost\n", DNS).configuration.broker
    assert (broker.broker_ip1, broker.broker_ip2) == ("127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize("key", ["bindAddress", "brokerIP1", "brokerIP2", "metricsAddress"])
def test_a_name_that_stands_for_nothing_is_refused(key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"b:1: {key}=nobody: this is no address, and no"):
        load_broker(f"{key}=nobody\n", DNS, name="b")


def test_name_server_and_controller_know_names_too() -> None:
    namesrv = load_namesrv("bindAddress=localhost\n", DNS).configuration.namesrv
    assert namesrv.bind_address == "127.0.0.1"
    with pytest.raises(ConfigurationError, match="bindAddress=nobody: this is no address"):
        load_namesrv("bindAddress=nobody\n", DNS)
    peers = "controllerDLegerPeers=n0-127.0.0.1:9878\n"
    found = load_controller(f"{peers}metricsAddress=broker-a\n", DNS).configuration
    assert found.controller.metrics_address == "10.0.0.7"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("a:1,b:2", "'a:1,b:2': between two addresses is a semicolon, no comma"),
        ("http://a:1", "'http://a:1' is a URL: write host:port alone"),
        ("a:1;http://b:2", "'http://b:2' is a URL: write host:port alone"),
    ],
)
def test_a_list_that_nobody_could_connect_to_is_refused(value: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        load_broker(f"namesrvAddr={value}\n", HERE)
    with pytest.raises(ConfigurationError, match=f"environment: NAMESRV_ADDR={value}: {reason}"):
        load_broker("", replace(HERE, environ={"NAMESRV_ADDR": value}))


def test_several_name_servers_with_semicolons_stay() -> None:
    broker = load_broker("namesrvAddr=a:1; b:2\n", HERE).configuration.broker
    assert broker.namesrv_addr == "a:1; b:2"
