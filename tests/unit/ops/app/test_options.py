"""Command lines, and what --check answers."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from twisted.python import usage

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.ops.app import namesrv_tap, tap
from rmq_ha.ops.app.options import BrokerOptions, NamesrvOptions


def broker(*arguments: str) -> BrokerOptions:
    options = BrokerOptions()
    options.parseOptions(arguments)
    return options


def test_options_become_settings_in_their_order() -> None:
    options = broker("-n", "a:1", "--set", "x=1=2", "--namesrvPort", "20001", "--set=y=")
    assert options.overrides == [
        ("namesrvAddr", "a:1"),
        ("x", "1=2"),
        ("embeddedNamesrvPort", "20001"),
        ("y", ""),
    ]


def test_a_name_server_has_its_port() -> None:
    options = NamesrvOptions()
    options.parseOptions(["--listenPort", "20001"])
    assert options.overrides == [("listenPort", "20001")]


def test_a_setting_without_value_is_a_usage_error() -> None:
    with pytest.raises(usage.UsageError, match="--set x: must be key=value"):
        broker("--set", "x")


def test_the_file_is_latin_1_and_optional(tmp_path: Path) -> None:
    path = tmp_path / "b.properties"
    path.write_bytes(b"brokerName=\xe9\n")
    assert broker("-c", str(path)).text() == "brokerName=é\n"
    assert broker().text() == ""


def test_a_missing_file_is_named() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"^/nowhere: No such file or directory; --config .* names a properties file",
    ):
        broker("--config", "/nowhere").text()


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("0", False), ("", False)])
def test_ready_can_be_asked_for_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, value: str, expected: bool
) -> None:
    monkeypatch.setenv("RMQHA_READY", value)
    assert broker().wants_ready is expected
    assert broker("--ready").wants_ready is True


def check(*arguments: str) -> object:
    with pytest.raises(SystemExit) as caught:
        tap.makeService(broker("--check", *arguments))
    return caught.value.code


def test_check_prints_what_differs_and_the_ports(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--set", "listenPort=20010", "-n", "a:1", "--set", "slaveTimeout=3000") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "namesrvAddr=a:1" in lines
    assert "listenPort=20010" in lines
    assert not any(line.startswith("slaveTimeout") for line in lines)
    assert lines[-1].startswith("# runs of messages are made in ")
    assert lines[-4:-1] == [
        "# port 20010: clients (listenPort)",
        "# port 20008: clients' fast port, no pulls (listenPort - 2)",
        "# port 20011: replication (listenPort + 1)",
    ]


def test_a_live_check_is_of_a_file() -> None:
    assert check("--live") == "--live looks at a broker's properties file: give --config"


def test_check_fails_on_an_unknown_key() -> None:
    reason = check("--set", "slaveTimeut=1")
    assert reason == "command line: unknown key slaveTimeut; did you mean slaveTimeout?"


def test_check_fails_on_a_bad_value() -> None:
    assert check("--set", "slaveTimeout=x") == (
        "rmqha: command line: slaveTimeout=x: must be a whole number"
    )


def test_check_fails_on_a_plugin_that_is_not_installed() -> None:
    assert str(check("--set", "hookPlugIn=none-such")).startswith(
        "rmqha: no IHookPlugin called 'none-such' is installed; installed: "
    )


def test_check_tells_a_key_without_effect_and_accepts_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert check("--set", "serverWorkerThreads=32") == 0
    assert "# command line: serverWorkerThreads has no effect: " in capsys.readouterr().out


def test_a_name_server_is_checked_too(capsys: pytest.CaptureFixture[str]) -> None:
    options = NamesrvOptions()
    options.parseOptions(["--check", "--listenPort", "20001"])
    with pytest.raises(SystemExit) as caught:
        namesrv_tap.makeService(options)
    assert caught.value.code == 0
    assert "listenPort=20001" in capsys.readouterr().out


def test_check_reads_the_acl_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["--set", "aclEnable=true", "--set", f"aclDirectory={tmp_path}"]
    assert f"neither {tmp_path}/plain_acl.yml" in str(check(*settings))
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts: [{accessKey: someaccount}]")
    assert str(check(*settings)) == (f"rmqha: {file}:1: secretKey: is missing in this account")
    file.write_text("acounts: []")
    assert check(*settings) == 0
    printed = capsys.readouterr().out
    assert f"# {file}:1: acounts is not known and has no effect" in printed
    assert "# no account and no white address is defined: nobody is let in" in printed


def certificate(folder: Path, days: int) -> list[str]:
    """Settings that name one which ends in so many days."""
    made = trustme.CA().issue_cert("box", not_after=datetime.now(UTC) + timedelta(days=days))
    made.private_key_pem.write_to_path(folder / "key.pem")
    made.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    settings = ("tls.test.mode.enable=false", f"tls.server.keyPath={folder}/key.pem")
    settings += (f"tls.server.certPath={folder}/cert.pem",)
    return [part for setting in settings for part in ("--set", setting)]


def test_check_fails_at_a_certificate_that_ended(tmp_path: Path) -> None:
    said = str(check(*certificate(tmp_path, -1)))
    assert said.startswith("rmqha: tls.server.certPath (box) ended at ")
    assert said.endswith("renew it now")


def test_check_tells_of_a_certificate_that_ends_soon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(*certificate(tmp_path, 9)) == 0
    assert "# tls.server.certPath (box) ends in 8 days" in capsys.readouterr().out


def test_who_reads_only_the_head_of_a_check_sees_no_traceback() -> None:
    """`--check | head -1` closes the pipe."""
    end, start = os.pipe()
    os.close(end)
    command = "from twisted.scripts.twistd import run; run()"
    made = subprocess.run(
        [sys.executable, "-c", command, "rmqnamesrv", "--check"],
        stdout=start,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(start)
    assert (made.returncode, made.stderr) == (0, b"")


def test_the_log_level_is_one_of_five() -> None:
    assert broker("--log-level", "debug").overrides == [("logLevel", "debug")]
    assert "must be one of debug, info, warn" in str(check("--log-level", "loud"))
