"""A whole broker with access control: what passes, what is refused, and what changes it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import gatherResults

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.remoting.signing import Credentials, RequestSigner, SigningCalls, sign
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.base.wire.frame import encode_frame
from rmq_ha.client.lookup.requests import pull_request, send_request
from tests.unit.server.broker.sim_broker import FAST_PORT, LISTEN_PORT, TOPIC, SimBroker

FILE = f"""
accounts:
- {{accessKey: adminadmin, secretKey: adminsecret, admin: true}}
- accessKey: useruser
  secretKey: usersecret
  defaultGroupPerm: SUB
  topicPerms: [{TOPIC}=PUB|SUB]
"""
PATH = "/conf/plain_acl.yml"
ADMIN = Credentials("adminadmin", "adminsecret")
USER = Credentials("useruser", "usersecret")


class Guarded:
    """A broker with access control, and its clients."""

    def __init__(self, text: str = FILE) -> None:
        self.sim = SimBroker()
        self.disk = self.sim.host.disk
        self.disk.replace(PATH, text.encode())
        configuration = self.sim.configuration
        configuration.broker.acl_enable = True
        configuration.ours.acl_plug_in = "plain"
        configuration.ours.acl_directory = "/conf"

    def call(
        self, request: RemotingCommand, account: Credentials | None = ADMIN, port: int = LISTEN_PORT
    ) -> RemotingCommand:
        return self.sim.call(sign(request, account) if account else request, port)

    def send(
        self, account: Credentials | None = USER, topic: str = TOPIC, port: int = LISTEN_PORT
    ) -> int:
        return self.call(self.sim.message(topic=topic), account, port).code

    def pass_time(self, seconds: float) -> None:
        end = self.sim.world.clock.seconds() + seconds
        self.sim.world.clock.run_while(lambda: self.sim.world.clock.seconds() < end, seconds + 1)

    def admin(self, code: int, **ext: str) -> RemotingCommand:
        return self.call(RemotingCommand(code, ext))

    def text(self) -> str:
        return self.disk.read_bytes(PATH).decode()


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    made = Guarded()
    made.sim.start()
    yield made
    made.sim.stop()


def test_both_ports_let_pass_what_is_granted_only(guarded: Guarded) -> None:
    for port in (LISTEN_PORT, FAST_PORT):
        assert guarded.send(port=port) == 0
        assert guarded.send(None, port=port) == 1
        assert guarded.send(topic="Other", port=port) == 1
        assert guarded.send(Credentials("useruser", "wrongsecret"), port=port) == 1
    pulled = guarded.call(pull_request("g", TOPIC, 0, 0), USER)
    assert pulled.code == 0
    assert guarded.call(pull_request("g", TOPIC, 0, 0), None).code == 1


def test_a_run_of_sends_is_sorted_out_one_by_one(guarded: Guarded) -> None:
    sim = guarded.sim
    requests: list[Any] = []
    for number in range(30):
        kind = number % 6
        message = sim.message(b"body %d" % number, "Other" if kind == 1 else TOPIC)
        if kind == 2:
            requests.append((1, message))
        elif kind == 3:
            requests.append((1, sign(message, Credentials("useruser", "wrongsecret"))))
        elif kind == 4:
            # Unusual: leaves the run.
            delayed = sim.message(b"later", TOPIC, DELAY="1")
            requests.append((0, sign(delayed, USER)))
        else:
            requests.append((1 if kind == 1 else 0, sign(message, USER)))
    answers = sim.wait(gatherResults([sim.ask(request) for _, request in requests]))
    assert [answer.code for answer in answers] == [code for code, _ in requests]
    assert guarded.sim.broker.store.max_offset_in_queue(TOPIC, 0) == 10


def test_a_header_that_can_be_read_in_two_ways_is_read_in_one(guarded: Guarded) -> None:
    """A run is recognised by its first bytes; what is checked must be what is served."""
    sim = guarded.sim
    for trick in (
        (b'"code":310,', b'"code":310,"code":28,'),
        (b'"flag":0', b'"flag":0,"remark":5,"x":{"b":"TBW102"}'),
    ):
        frame = encode_frame(sign(send_request("g", "Other", 0, b"hi", "", 1), USER))
        header = frame[8:-2].replace(*trick)
        whole = (len(header) + 6).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
        sim.wait(raw(sim, whole + b"hi"))
        assert sim.broker.topics.get("Other") is None


def raw(sim: SimBroker, data: bytes) -> Any:
    """Write bytes to the broker; fires when something comes back."""
    from twisted.internet.defer import Deferred
    from twisted.internet.protocol import Factory, Protocol

    answered: Any = Deferred()

    class Client(Protocol):
        def connectionMade(self) -> None:
            assert self.transport is not None
            self.transport.write(data)

        def dataReceived(self, data: bytes) -> None:
            answered.callback(data)
            assert self.transport is not None
            self.transport.loseConnection()

    endpoint = sim.client_host.seams.network.client(sim.host.ip, LISTEN_PORT)
    endpoint.connect(Factory.forProtocol(Client))
    return answered


def test_a_oneway_request_is_refused_in_silence(guarded: Guarded) -> None:
    message = guarded.sim.message()
    message.flag = FLAG_ONEWAY
    guarded.sim.wait(guarded.sim.client.oneway(f"{guarded.sim.host.ip}:{LISTEN_PORT}", message))
    assert guarded.send() == 0
    assert guarded.sim.broker.store.max_offset_in_queue(TOPIC, 0) == 1


def test_refusals_are_logged_once_with_address_and_reason(
    guarded: Guarded, logged: list[Any]
) -> None:
    for _ in range(5):
        guarded.send(Credentials("useruser", "wrongsecret"))
    lines = [event for event in logged if "refused request" in (event.get("log_format") or "")]
    assert len(lines) == 1
    assert lines[0]["peer"].startswith(guarded.sim.client_host.ip)
    assert lines[0]["reason"] == "accessKey=useruser: the secret is wrong"
    guarded.pass_time(11)
    guarded.send(None)
    lines = [event for event in logged if "refused request" in (event.get("log_format") or "")]
    assert [event["silent"] for event in lines] == [0, 4]


def test_a_changed_file_is_in_force_soon_also_for_who_is_connected(guarded: Guarded) -> None:
    assert guarded.send() == 0
    guarded.disk.replace(PATH, FILE.replace("usersecret", "othersecret").encode())
    guarded.pass_time(2)
    assert guarded.send() == 1
    assert guarded.send(Credentials("useruser", "othersecret")) == 0


def test_a_broken_file_changes_nothing_and_is_said_loudly(
    guarded: Guarded, logged: list[Any]
) -> None:
    guarded.disk.replace(PATH, b"accounts: broken")
    guarded.pass_time(5)
    assert guarded.send() == 0
    assert guarded.send(None) == 1
    errors = [event for event in logged if event["log_level"].name == "error"]
    assert len(errors) == 1
    assert "/conf/plain_acl.yml:1: accounts: must be a list" in errors[0]["fault"]


def test_a_broken_file_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match=r"/conf/plain_acl.yml:1: is no YAML"):
        Guarded("accounts: }").sim.start()


def test_codes_50_to_54(guarded: Guarded) -> None:
    new = Credentials("newaccount", "newsecret")
    assert guarded.send(new) == 1
    answer = guarded.admin(
        50, accessKey="newaccount", secretKey="newsecret", admin="false", topicPerms=f"{TOPIC}=PUB"
    )
    assert (answer.code, answer.remark) == (0, None)
    assert guarded.send(new) == 0
    assert "accessKey: newaccount" in guarded.text()

    info = guarded.admin(52)
    assert info.ext is not None
    assert json.loads(info.ext["version"])["counter"] == 1
    assert json.loads(info.ext["allAclFileVersion"]) == {PATH: json.loads(info.ext["version"])}
    assert info.ext["brokerName"] == "broker-a"

    config = json.loads(guarded.admin(54).body or b"")
    assert config["globalWhiteAddrs"] == []
    assert config["plainAccessConfigs"][-1] == {
        "accessKey": "newaccount",
        "secretKey": "newsecret",
        "admin": False,
        "topicPerms": [f"{TOPIC}=PUB"],
    }

    assert guarded.admin(51, accessKey="newaccount").code == 0
    assert guarded.send(new) == 1

    assert guarded.admin(53, globalWhiteAddrs=f"10.0.0.1, {guarded.sim.client_host.ip}").code == 0
    assert guarded.send(None, "Other") == 0
    assert guarded.admin(53, globalWhiteAddrs="", aclFileFullPath=PATH).code == 0
    assert guarded.send(None) == 1
    assert json.loads((guarded.admin(52).ext or {})["version"])["counter"] == 4


def test_codes_50_to_54_refuse_with_rocketmqs_codes(guarded: Guarded) -> None:
    before = guarded.text()
    for code, ext, refused, reason in (
        (50, {"accessKey": "newaccount"}, 209, "must both be given"),
        (50, {"accessKey": "newaccount", "secretKey": "12345678", "topicPerms": "a"}, 209, "'a'"),
        (51, {"accessKey": "nobody"}, 210, "there is no account nobody"),
        (51, {}, 210, "there is no account"),
        (53, {}, 211, "globalWhiteAddrs is missing"),
        (53, {"globalWhiteAddrs": "nonsense"}, 211, "'nonsense' is no address"),
        (53, {"globalWhiteAddrs": "", "aclFileFullPath": "/etc/passwd"}, 211, "none of the ACL"),
    ):
        answer = guarded.call(RemotingCommand(code, ext))
        assert (answer.code, reason in (answer.remark or "")) == (refused, True), answer
        assert "12345678" not in (answer.remark or "")
    assert guarded.text() == before
    for code in (50, 51, 53, 54):
        assert guarded.call(RemotingCommand(code, {"accessKey": "useruser"}), USER).code == 1


def test_a_disk_that_refuses_is_told_and_changes_nothing(guarded: Guarded) -> None:
    guarded.disk.replace(PATH, b"accounts: broken")
    answer = guarded.admin(50, accessKey="newaccount", secretKey="newsecret")
    assert answer.code == 209
    assert "must be a list" in (answer.remark or "")


def test_many_changes_at_once_all_come_into_force(guarded: Guarded) -> None:
    sim = guarded.sim
    answers = sim.wait(
        gatherResults(
            [
                sim.ask(
                    sign(
                        RemotingCommand(
                            50, {"accessKey": f"account{number}", "secretKey": "12345678"}
                        ),
                        ADMIN,
                    )
                )
                for number in range(10)
            ]
        )
    )
    assert {answer.code for answer in answers} == {0}
    assert len(json.loads(guarded.admin(54).body or b"")["plainAccessConfigs"]) == 12


def test_without_access_control_the_codes_say_so() -> None:
    sim = SimBroker().start()
    codes = {50: 209, 51: 210, 52: 1, 53: 211, 54: 1}
    for code, refused in codes.items():
        answer = sim.call(RemotingCommand(code, {"accessKey": "a", "globalWhiteAddrs": ""}))
        assert (answer.code, "aclEnable=true" in (answer.remark or "")) == (refused, True)
    sim.stop()


def test_the_configuration_does_not_show_the_secret(guarded: Guarded) -> None:
    ours = guarded.sim.configuration.ours
    ours.acl_access_key, ours.acl_secret_key = "someaccount", "s3cr3ts3cr3t"
    shown = (guarded.admin(RequestCode.GET_BROKER_CONFIG).body or b"").decode()
    assert "aclAccessKey=someaccount" in shown
    assert "aclSecretKey=***" in shown
    assert "s3cr3t" not in shown
    change = RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, {}, b"aclSecretKey=x\n")
    assert guarded.call(change).code == 16


def test_a_slave_signs_what_it_asks_of_its_master(guarded: Guarded) -> None:
    from twisted.internet.defer import Deferred

    from rmq_ha.server.broker.outer_api import BrokerOuterAPI

    sim = guarded.sim
    address = f"{sim.host.ip}:{LISTEN_PORT}"
    api = BrokerOuterAPI(SigningCalls(sim.client, RequestSigner(ADMIN)))
    table = sim.wait(Deferred.fromCoroutine(api.topic_configs(address)))
    assert TOPIC in table.topics
