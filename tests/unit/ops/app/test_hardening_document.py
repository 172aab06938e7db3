"""docs/hardening.md: `--check` accepts its files, they leave nothing open, and its keys exist."""

import re
from pathlib import Path

import pytest
import trustme

from rmq_ha.base.config.all_keys import ALL_KEYS
from rmq_ha.base.config.load import load_broker, load_namesrv
from rmq_ha.ops.app import namesrv_tap, tap
from rmq_ha.ops.app.exposure import exposure, replication_exposure
from rmq_ha.ops.app.options import BrokerOptions, NamesrvOptions
from tests.kits.pages import FILE, REPO

TEXT = (REPO / "docs" / "hardening.md").read_text()
ETC = "/etc/rocketmq"
IN_ACCOUNTS = {"defaultTopicPerm", "defaultGroupPerm", "globalWhiteRemoteAddresses"}
OF_SYSTEMD = {"NoNewPrivileges", "ProtectSystem", "PrivateTmp", "ReadWritePaths", "LimitNOFILE"}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The folder that the files are in, with a certificate for all addresses."""
    (tmp_path / "tls").mkdir()
    root = trustme.CA()
    issued = root.issue_cert("10.0.0.5", "10.0.0.6", "10.0.0.7")
    root.cert_pem.write_to_path(str(tmp_path / "tls/ca.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "tls/server.key"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "tls/server.pem"))
    for name, text in FILE.findall(TEXT):
        (tmp_path / name).write_text(text.replace(ETC, str(tmp_path)))
    for path in tmp_path.rglob("*.*"):
        path.chmod(0o600)
    return tmp_path


def checked(path: Path, *more: str) -> object:
    """What `--check` leaves with."""
    is_broker = path.name.startswith("broker")
    options = BrokerOptions() if is_broker else NamesrvOptions()
    options.parseOptions(["--check", "--config", str(path), *more])
    with pytest.raises(SystemExit) as caught:
        (tap if is_broker else namesrv_tap).makeService(options)  # type: ignore[arg-type]
    return caught.value.code


def test_the_files_are_accepted(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a notice, but for the ports."""
    slave = ["bindAddress=10.0.0.7", "brokerIP1=10.0.0.7", "brokerIP2=10.0.0.7", "brokerId=1"]
    slave += ["brokerRole=SLAVE", "haTrustedMasters=10.0.0.6"]
    assert checked(machine / "namesrv.properties") == 0
    assert checked(machine / "broker-a.properties") == 0
    assert checked(machine / "broker-a.properties", *(f"--set={item}" for item in slave)) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# ")]
    assert [line for line in said if not line.startswith(("# port ", "# runs of messages "))] == []


def test_nothing_is_open(machine: Path) -> None:
    """What a start would warn of."""
    here = BrokerOptions().surroundings()
    namesrv, _ = load_namesrv((machine / "namesrv.properties").read_text(), here)
    assert exposure(namesrv.namesrv.bind_address, namesrv.plugin_options) is None
    broker, _ = load_broker((machine / "broker-a.properties").read_text(), here)
    own, tls = broker.ours, broker.plugin_options
    assert exposure(own.bind_address, tls, has_acl=bool(own.acl_plug_in)) is None
    assert replication_exposure(own.bind_address, tls, 10912, own.ha_allowed_slaves) is None


def test_the_keys_of_the_checklist_exist() -> None:
    checklist = TEXT[TEXT.index("## Checklist") : TEXT.index("## A configuration")]
    words = {word for text in re.findall(r"`([^`]+)`", checklist) for word in text.split("=")[:1]}
    named = {word for word in words if re.fullmatch(r"(tls\.)?[\w.]*[a-z][A-Z]\w*", word)}
    assert len(named) > 25
    assert named - ALL_KEYS.keys() - IN_ACCOUNTS - OF_SYSTEMD == set()
