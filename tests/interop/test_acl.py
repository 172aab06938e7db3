"""
Access control: Java's clients with accounts, `mqadmin`'s ACL commands, slaves of guarded masters.

One guarded master for all, with a Java slave, which does not sign; and a guarded Java master with
a slave of ours, which does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from rmq_ha.base.remoting.signing import Credentials, sign
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.client.rules.errors import MQClientError
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ClientConfig
from tests.interop.accounts import ADMIN, FILE, FORMER, USER
from tests.interop.conversation import Conversation, compiled_java
from tests.interop.rig import ALL_JAVA, Rig, Server
from tests.interop.wire import Refused, Wire

TOPICS = ["Pub", "Sub", "Both"]
BROKER = "broker-a"
QUICK = {"waitTimeMillsInSendQueue": 10000, "registerNameServerPeriod": 10000}


class Guarded:
    """A name server, a master with access control, and a Java program with clients of it."""

    def __init__(
        self,
        rig: Rig,
        name: str,
        program: list[str],
        *,
        java: bool = False,
        is_strict: bool = True,
    ) -> None:
        self.is_strict = is_strict and not java and not ALL_JAVA
        self.rig, self.name = rig, name
        self.namesrv = rig.namesrv(name=f"ns-{name}")
        directory = rig.directory / name
        self.file = directory / "conf" / "plain_acl.yml"
        self.file.parent.mkdir(parents=True)
        self.file.write_text(FILE)
        self.file.chmod(0o600)
        self.master = rig.broker(
            "master-async.conf", name, java=java, namesrv=self.namesrv,
            aclEnable="true", aclStrict=str(is_strict).lower(), aclDirectory=self.file.parent,
            **QUICK,
        )  # fmt: skip
        home = rig.directory / f"tools-{name}"
        (home / "conf").mkdir(parents=True)
        (home / "conf" / "tools.yml").write_text("accessKey: adminadmin\nsecretKey: adminsecret\n")
        for name in ("logback.xml", "conf/logback_tools.xml"):
            (home / name).write_text("<configuration><root level='OFF'/></configuration>\n")
        options = [
            f"-Drocketmq.home.dir={home}",
            "-Drocketmq.client.logUseSlf4j=true",
            f"-Dlogback.configurationFile={home / 'logback.xml'}",
        ]
        self.client = Conversation(
            [program[0], *options, *program[1:], self.namesrv], home / "errors.log"
        )

    def do(self, order: str) -> dict[str, Any]:
        """What an order came to."""
        self.client.do(order)
        return [event for event in self.client.events if event["event"] == "done"][-1]

    def allowed(self, order: str) -> Any:
        answer = self.do(order)
        assert "error" not in answer, f"{order}: {answer}"
        return answer["out"]

    def denied(self, order: str, reason: str) -> None:
        answer = self.do(order)
        assert answer.get("code") == 1, f"{order}: {answer}"
        assert reason in answer["error"]
        assert "secret" not in answer["error"].replace("secret key", "")

    def unknown(self, access_key: str) -> str:
        """What is said of an account that is not there: strictly the same as of a wrong secret."""
        said = "Check signature failed for accessKey=" if self.is_strict else "No acl config for "
        return said + access_key

    def slave(self, name: str, *, java: bool, **settings: Any) -> Server:
        """Another broker that follows the master."""
        return self.rig.broker(
            "slave.conf",
            f"{name}-{self.name}",
            java=java,
            namesrv=self.namesrv,
            **{**QUICK, **settings},
        )

    def until(self, condition: Any, seconds: float, what: str) -> None:
        self.rig.until(condition, seconds, what, self.master)


def topics_of(slave: Server) -> set[str]:
    """What the slave copied of its master's topics."""
    path = slave.store / "config" / "topics.json"
    return set(fastjson.parse(path.read_bytes())["topicConfigTable"]) if path.exists() else set()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return compiled_java("Acl", tmp_path_factory.mktemp("acl-java"))


@pytest.fixture(scope="module", params=["strict", "as 4.9.7"])
def guarded(
    request: pytest.FixtureRequest, shared_rig: Rig, program: list[str]
) -> Iterator[Guarded]:
    is_strict = request.param == "strict"
    made = Guarded(shared_rig, "m" if is_strict else "m-java-way", program, is_strict=is_strict)
    for topic in TOPICS:
        made.allowed(f"topic {ADMIN} {made.master.address} {topic}")
    yield made
    made.client.close()


def test_clients_may_what_is_granted(guarded: Guarded) -> None:
    assert guarded.allowed(f"send {USER} Pub") == "SEND_OK"
    assert guarded.allowed(f"send {USER} Both") == "SEND_OK"
    assert guarded.allowed(f"send {ADMIN} Sub") == "SEND_OK"
    assert guarded.allowed(f"pull {USER} g-Both Both {BROKER}") in ("FOUND", "NO_NEW_MSG")
    assert guarded.allowed(f"pull {USER} g-Both Sub {BROKER}") == "FOUND"
    assert guarded.allowed(f"consume {USER} g-Both Both") is True


def test_a_client_that_has_the_previous_secret_still(guarded: Guarded) -> None:
    """A broker of ours takes it; Java's reads the file, and does not."""
    if guarded.master.java:
        guarded.denied(f"send {FORMER} Both", "Check signature failed")
    else:
        assert guarded.allowed(f"send {FORMER} Both") == "SEND_OK"


def test_clients_may_nothing_else(guarded: Guarded) -> None:
    guarded.denied(f"send {USER} Sub", "No default permission for topic:Sub")
    guarded.denied(f"send {USER} Other", "No default permission for topic:")  # not TBW102 either
    guarded.denied(f"pull {USER} g-Both Pub {BROKER}", "No default permission for topic:Pub")
    guarded.denied(f"pull {USER} g-Sub Both {BROKER}", "No default permission for group:g-Sub")
    guarded.denied("send useruser wrongsecret Pub", "Check signature failed for accessKey=useruser")
    guarded.denied("send nobodynobody usersecret Pub", guarded.unknown("nobodynobody"))
    guarded.denied("send - - Pub", "No accessKey is configured")
    admin = f"topic {USER} {guarded.master.address} New"
    assert "Need admin permission for request code=17" in guarded.do(admin)["error"]


def test_both_ports_and_every_kind_of_header_are_checked(guarded: Guarded) -> None:
    host, _, port = guarded.master.address.rpartition(":")
    user = Credentials(*USER.split())
    for address in (guarded.master.address, f"{host}:{int(port) - 2}"):
        with Wire(address) as wire:
            requests = []
            for number in range(40):
                topic = "Sub" if number % 4 == 1 else "Pub"
                # Java reads an empty value of a binary header as null, and checks "null".
                request = send_request("p", topic, 0, b"x", "TAGS\x01A", 1)
                request.binary = number >= 20
                requests.append(request if number % 4 == 2 else sign(request, user))
            answers = wire.exchange(requests)
            assert [answer.code for answer in answers] == [0, 1, 1, 0] * 10
            with pytest.raises(Refused):
                wire.call(RequestCode.GET_BROKER_RUNTIME_INFO)


def test_a_changed_file_counts_for_who_is_connected(guarded: Guarded) -> None:
    send = f"send {USER} Pub"
    assert guarded.allowed(send) == "SEND_OK"
    guarded.file.write_text(FILE.replace("Pub=PUB", "Pub=SUB"))
    guarded.until(lambda: guarded.do(send).get("code") == 1, 30, "PUB is taken away")
    if not guarded.master.java:  # Java's rules are then half read
        guarded.file.write_text("accounts: broken\n")
        guarded.until(
            lambda: "accounts: must be a list" in guarded.master.output.read_text(),
            30,
            "the broken file is complained of",
        )
        guarded.denied(send, "topic:Pub")
        assert guarded.allowed(f"send {USER} Both") == "SEND_OK"
    guarded.file.write_text(FILE)
    guarded.until(lambda: guarded.do(send).get("out") == "SEND_OK", 30, "PUB is given back")


def test_mqadmin_changes_accounts(guarded: Guarded) -> None:
    where = f"-n {guarded.namesrv} -b {guarded.master.address}"
    send = "send newaccount newsecret Sub"
    printed = guarded.allowed(
        f"mqadmin updateAclConfig {where} -a newaccount -s newsecret -m false -t Sub=PUB -i DENY"
    )
    assert "success" in printed
    assert guarded.allowed(send) == "SEND_OK"

    version = guarded.allowed(f"mqadmin clusterAclConfigVersion {where}")
    assert str(guarded.file) in version
    assert BROKER in version
    rules = guarded.allowed(f"mqadmin getAclConfig {where}")
    assert "newaccount" in rules
    assert "Both=PUB|SUB" in rules

    assert "success" in guarded.allowed(f"mqadmin deleteAclConfig {where} -a newaccount")
    guarded.denied(send, guarded.unknown("newaccount"))
    assert "newaccount" not in guarded.file.read_text()
    for word in ("useruser", "previousSecretKey: formersecret", "user.example"):
        assert word in guarded.file.read_text()
    if not guarded.master.java:
        assert guarded.file.stat().st_mode & 0o777 == 0o600

    failed = guarded.allowed(f"mqadmin deleteAclConfig {where} -a nobodynobody")
    assert "The accesskey[nobodynobody] corresponding to accessConfig has been deleted" in failed
    failed = guarded.allowed(
        f"mqadmin updateAclConfig {where} -a newaccount -s newsecret -m false -t Sub=ALL"
    )
    assert "success" not in failed


def traced(guarded: Guarded) -> int:
    """Messages in the trace topic."""
    admin, found = Credentials(*ADMIN.split()), 0
    with Wire(guarded.master.address) as wire:
        for queue_id in range(8):
            ext = {"topic": "RMQ_SYS_TRACE_TOPIC", "queueId": str(queue_id)}
            (answer,) = wire.exchange(
                [sign(RemotingCommand(RequestCode.GET_MAX_OFFSET, ext), admin)]
            )
            found += int((answer.ext or {})["offset"])
    return found


def test_whatever_clients_do_beside_sending_and_pulling(guarded: Guarded) -> None:
    """Retries, locks, transactions, replies, traces: nothing is granted but the usual."""
    assert guarded.allowed(f"send {USER} Both") == "SEND_OK"
    assert guarded.allowed(f"retry {USER} g-Both Both") is True
    assert guarded.allowed(f"send {USER} Both") == "SEND_OK"
    assert guarded.allowed(f"orderly {USER} g-Both Both") is True
    assert guarded.allowed(f"transaction {USER} p Both") is True
    assert guarded.allowed(f"request {USER} g-Both Both") == "pong"
    before = traced(guarded)
    assert guarded.allowed(f"trace {USER} Both") == "SEND_OK"
    guarded.until(lambda: traced(guarded) > before, 30, "the trace is there")
    if guarded.is_strict:
        guarded.denied(f"transaction {USER} q Both", "No default permission for group:q")


KEYS = {"aclAccessKey": "slaveslave", "aclSecretKey": "slavesecret"}
needs_ours = pytest.mark.skipif(ALL_JAVA, reason="a Java slave does not sign")


@needs_ours
def test_our_slave_signs(guarded: Guarded) -> None:
    slave = guarded.slave("s-ours", java=False, brokerId=2, **KEYS)
    guarded.until(lambda: "Both" in topics_of(slave), 30, "the slave has the topics")


@needs_ours
def test_our_slave_signs_for_a_java_master(shared_rig: Rig, program: list[str]) -> None:
    made = Guarded(shared_rig, "m-java", program, java=True)
    try:
        made.allowed(f"topic {ADMIN} {made.master.address} Both")
        slave = made.slave("s-of-java", java=False, **KEYS)
        made.until(lambda: "Both" in topics_of(slave), 30, "the slave has the topics")
        credentials = Credentials("adminadmin", "adminsecret")
        settings = ClientConfig(namesrv_addr=made.namesrv, credentials=credentials)
        with BlockingClient(settings) as client:
            sent = client.send(Message("Both", b"signed"))
            queue, offset = sent.message_queue, sent.queue_offset
            (found,) = client.messages(queue, offset, offset + 1)
            assert found.body == b"signed"
        made.denied(f"send {FORMER} Both", "Check signature failed")
        where = f"-n {made.namesrv} -b {made.master.address}"
        change = f"mqadmin updateAclConfig {where} -a newaccount -s newsecret -m false"
        assert "success" in made.allowed(change)
        for word in ("newaccount", "previousSecretKey: formersecret", "user.example"):
            assert word in made.file.read_text()
        unsigned = ClientConfig(namesrv_addr=made.namesrv)
        with BlockingClient(unsigned) as client, pytest.raises(MQClientError, match="AclException"):
            client.send(Message("Both", b"unsigned"))
    finally:
        made.client.close()


def test_a_slave_that_does_not_sign_needs_the_white_list(guarded: Guarded) -> None:
    """A Java slave copies topics only once its address is let in."""
    slave = guarded.slave("s-java", java=True)
    time.sleep(1)
    assert "Both" not in topics_of(slave)
    printed = guarded.allowed(
        f"mqadmin updateGlobalWhiteAddr -n {guarded.namesrv} -b {guarded.master.address} "
        "-g 10.0.0.1,127.0.0.*"
    )
    assert "success" in printed
    seconds = 30 if guarded.master.java else 0  # Java reads its own change as somebody else's
    guarded.until(lambda: guarded.do("send - - Sub").get("out") == "SEND_OK", seconds, "let in")
    guarded.until(lambda: "Both" in topics_of(slave), 30, "the slave has the topics")
