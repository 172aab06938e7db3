"""Every file in conf/ is one that --check accepts."""

from collections import Counter
from pathlib import Path

import pytest

from rmq_ha.base.config.dledger_settings import parse_peers
from rmq_ha.base.config.load import LoadedBroker, load_broker, load_namesrv
from rmq_ha.base.config.plans import embeds_namesrv, port_plan
from rmq_ha.base.config.properties import decode, parse
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.config.tls_keys import TLS_KEYS
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.tls.options import TlsOptions

CONF = Path(__file__).parents[4] / "conf"
FILES = sorted(CONF.rglob("*.properties"))
BROKERS = [path for path in FILES if path.name not in ("namesrv.properties", "tls.properties")]
HERE = Surroundings({}, "/home/u", "box", "192.0.2.1", "/srv")


def load(path: Path) -> LoadedBroker:
    return load_broker(decode(path.read_bytes()), HERE, name=str(path))


def test_the_layouts_have_upstreams_names() -> None:
    pair = ["broker-a-s.properties", "broker-a.properties"]
    four = [*pair, "broker-b-s.properties", "broker-b.properties"]
    found = {path.name: sorted(p.name for p in path.glob("*")) for path in CONF.iterdir()}
    assert found["2m-2s-sync"] == four
    assert found["2m-2s-async"] == four
    assert found["2m-noslave"] == ["broker-a.properties", "broker-b.properties"]
    assert found["dledger"] == [f"broker-n{number}.properties" for number in range(3)]
    assert set(pair) | {"namesrv.properties"} <= set(found)


@pytest.mark.parametrize("path", BROKERS, ids=str)
def test_a_broker_file_is_valid_without_a_word(path: Path) -> None:
    configuration, notices = load(path)
    assert notices == []
    assert embeds_namesrv(configuration) == (path == CONF / "broker-a.properties")
    assert (configuration.store.broker_role is BrokerRole.SLAVE) == path.stem.endswith("-s")


def test_the_name_server_file_is_valid_without_a_word() -> None:
    path = CONF / "namesrv.properties"
    assert load_namesrv(decode(path.read_bytes()), HERE, name=str(path)).notices == []


def test_the_tls_file_holds_what_a_tls_file_may_hold() -> None:
    """Also the keys that are commented out."""
    text = (CONF / "tls.properties").read_text()
    active = "".join(
        line.removeprefix("#") + "\n" for line in text.splitlines() if not line.startswith("# ")
    )
    options = TlsOptions({"tls.config.file": "/tls"}, {"/tls": active.encode()}.__getitem__)
    assert options.unknown == []
    named = {item.key for item in parse(active)}
    assert named == TLS_KEYS.keys() - {"tls.server.mode", "tls.enable", "tls.config.file"}


@pytest.mark.parametrize("layout", [".", "2m-2s-sync", "2m-2s-async", "2m-noslave", "dledger"])
def test_all_brokers_of_a_layout_can_run_on_one_machine(layout: str) -> None:
    loaded = [load(path).configuration for path in BROKERS if path.parent == CONF / layout]
    ports = Counter(item.port for each in loaded for item in port_plan(each))
    stores = {each.store.store_path_root_dir for each in loaded}
    names = {
        (each.broker.broker_name, each.broker.broker_id, each.store.dleger_self_id)
        for each in loaded
    }
    assert max(ports.values()) == 1
    assert len(stores) == len(names) == len(loaded) > 1


def test_the_members_of_the_dledger_layout_are_one_group() -> None:
    stores = [load(path).configuration.store for path in BROKERS if path.parent.name == "dledger"]
    assert {each.enable_dleger_commit_log for each in stores} == {True}
    assert len({(each.dleger_group, each.dleger_peers) for each in stores}) == 1
    assert [each.dleger_self_id for each in stores] == list(parse_peers(stores[0].dleger_peers))
