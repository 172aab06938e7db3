"""
ACL 2.0 of RocketMQ 5: accounts that `rmqha-admin acl export --v2` gives to a Java broker, and
5.x's mqadmin with users and policies at a broker of ours.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rmq_ha.base.remoting.signing import Credentials
from rmq_ha.client.lookup.requests import pull_request, send_request
from tests.interop.java_auth import ROOT, broker_with_auth, signed
from tests.interop.mqadmin_5x import Mqadmin
from tests.interop.rig import Rig
from tests.interop.test_controller import ask, pytestmark  # noqa: F401

ACCOUNTS = """
accounts:
- {accessKey: writer01, secretKey: writersecret, topicPerms: [A=PUB, B=DENY]}
- accessKey: reader01
  secretKey: readersecret
  defaultTopicPerm: SUB
  topicPerms: [A=PUB]
  groupPerms: [g=SUB]
"""
WRITER = Credentials("writer01", "writersecret")
READER = Credentials("reader01", "readersecret")


def admin(*words: str) -> str:
    """A line of `rmqha-admin`, as the administrator of the Java broker."""
    keys = {"RMQHA_ACCESS_KEY": ROOT.access_key, "RMQHA_SECRET_KEY": ROOT.secret_key}
    done = subprocess.run(
        [str(Path(sys.executable).parent / "rmqha-admin"), *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **keys},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_who_may_send_here_may_send_there(rig: Rig) -> None:
    """Also to no other topic; and the accounts come back as they were."""
    file, document = rig.directory / "plain_acl.yml", rig.directory / "v2.json"
    file.write_text(ACCOUNTS)
    admin("acl", "export", str(document), "--v2", "--from", str(file), "--cluster", "c")
    java = broker_with_auth(rig, rig.namesrv())
    admin("acl", "import", str(document), "--on", java.address, "--yes")
    assert "create" not in admin("acl", "import", str(document), "--on", java.address, "--yes")

    def sends(account: Credentials, topic: str) -> int:
        return ask(java.address, signed(send_request("p", topic, 0, b"x", "", 1), account)).code

    def reads(account: Credentials, topic: str, group: str = "g") -> int:
        return ask(java.address, signed(pull_request(group, topic, 0, 0), account)).code

    refused = 16
    assert sends(ROOT, "A") == sends(ROOT, "B") == sends(ROOT, "C") == 0
    assert [sends(WRITER, topic) for topic in "ABC"] == [0, refused, refused]
    assert [sends(READER, topic) for topic in "ABC"] == [0, refused, refused]
    assert [reads(WRITER, topic) for topic in "AB"] == [refused, refused]
    # 24, 26 or 19: what a group that nobody subscribed to gets.
    assert reads(READER, "A") == refused, "the entry replaces the default"
    assert reads(READER, "B") != refused
    assert reads(READER, "B", "other") == refused
    assert reads(READER, "RMQ_SYS_TRANS_HALF_TOPIC") == refused

    back = rig.directory / "back.yml"
    admin("acl", "export", str(back), "--v1", "--on", java.address)
    before = {item["accessKey"]: item for item in yaml.safe_load(ACCOUNTS)["accounts"]}
    after = {item["accessKey"]: item for item in yaml.safe_load(back.read_text())["accounts"]}
    assert set(after) == {*before, ROOT.access_key}
    for name, account in before.items():
        assert account.items() <= after[name].items(), name


@pytest.mark.skipif(
    "RMQ_HA_AUTH_MQADMIN" not in os.environ,
    reason="RMQ_HA_AUTH_MQADMIN=1 runs it; the codes are always tested by tests/vectors/auth",
)
def test_mqadmin_of_5_x_at_our_broker(rig: Rig) -> None:
    """All ten commands; what an account cannot carry is refused with the reason."""
    conf = rig.directory / "conf"
    conf.mkdir()
    (conf / "plain_acl.yml").write_text(
        "accounts:\n- {accessKey: rootroot, secretKey: rootsecret, admin: true}\n"
    )
    broker = rig.broker(
        "master-async.conf", "m", namesrv=rig.namesrv(), aclEnable="true", aclDirectory=conf
    )
    mqadmin = Mqadmin(rig)
    at = ("-b", broker.address)
    try:
        assert "success" in mqadmin("createUser", *at, "-u", "alice01", "-p", "alicepass")
        assert "success" in mqadmin("updateUser", *at, "-u", "alice01", "-p", "alicepass2")
        shown = mqadmin("getUser", *at, "-u", "alice01")
        assert [word in shown for word in ("alice01", "alicepass2", "Normal")] == [True] * 3
        assert "rootroot" in mqadmin("listUser", *at)
        allow = ("-s", "User:alice01", "-d", "Allow")
        assert "success" in mqadmin("createAcl", *at, *allow, "-r", "Topic:A", "-a", "Pub")
        assert "success" in mqadmin("updateAcl", *at, *allow, "-r", "Topic:A", "-a", "Pub,Sub")
        assert "[Pub, Sub]" in mqadmin("getAcl", *at, "-s", "User:alice01")
        assert "Topic:A" in mqadmin("listAcl", *at)
        said = mqadmin("createAcl", *at, *allow, "-r", "Topic:Ord*", "-a", "Pub")
        assert "CODE: 29" in said
        assert "for all names that begin so" in said
        alice = Credentials("alice01", "alicepass2")
        sends = [
            ask(broker.address, signed(send_request("p", topic, 0, b"x", "", 1), alice)).code
            for topic in "AB"
        ]
        assert sends == [0, 1], "a refusal as of RocketMQ 4.9"
        assert "success" in mqadmin("deleteAcl", *at, "-s", "User:alice01", "-r", "Topic:A")
        assert "success" in mqadmin("deleteUser", *at, "-u", "alice01")
        assert "alice01" not in mqadmin("listUser", *at)
    finally:
        mqadmin.close()
