"""A broker that wants TLS, signed times or certificates, and who meets it: real processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
import trustme

from rmq_ha.base.host.blocking import BlockingCalls, now_ms
from rmq_ha.base.model.topics import DEFAULT_TOPIC
from rmq_ha.base.remoting.signing import Credentials, RequestSigner, SignedTimes, sign
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.client.rules.errors import MQClientError
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ClientConfig
from tests.live.lone_broker import LoneBroker

BASES = range(25320, 25400, 4)
USER = Credentials("useruser", "usersecret")
ACCOUNTS = f"""
accounts:
- {{accessKey: adminadmin, secretKey: adminsecret, admin: true, certificateNames: [ops.example]}}
- {{accessKey: useruser, secretKey: usersecret, topicPerms: ["{DEFAULT_TOPIC}=PUB"]}}
"""


class Broker(LoneBroker):
    """A master that signs for itself, with its name server; everything demanded, plain allowed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        root = trustme.CA()
        root.cert_pem.write_to_path(str(directory / "root.pem"))
        for name in ("broker", "ops"):
            pair = root.issue_cert("127.0.0.1" if name == "broker" else f"{name}.example")
            pair.private_key_pem.write_to_path(str(directory / f"{name}.key"))
            pair.cert_chain_pems[0].write_to_path(str(directory / f"{name}.pem"))
        (directory / "plain_acl.yml").write_text(ACCOUNTS)
        tls = "".join(
            f"tls.{side}.keyPath={directory}/broker.key\ntls.{side}.certPath={directory}/broker.pem\n"
            f"tls.{side}.trustCertPath={directory}/root.pem\n"
            for side in ("server", "client")
        )
        super().__init__(
            directory,
            BASES,
            "aclEnable=true\naclRequiresTls=true\naclRequiresSignedTime=true\n"
            "aclAccessKey=adminadmin\naclSecretKey=adminsecret\n"
            "useTLS=true\ntls.test.mode.enable=false\ntls.server.mode=permissive\n"
            f"tls.server.need.client.auth=optional\n{tls}",
        )

    def keys(self, name: str = "") -> dict[str, str]:
        """The `tls.*` keys of a client, with a certificate or without."""
        keys = {"tls.test.mode.enable": "false"}
        keys["tls.client.trustCertPath"] = f"{self.directory}/root.pem"
        if name:
            keys["tls.client.keyPath"] = f"{self.directory}/{name}.key"
            keys["tls.client.certPath"] = f"{self.directory}/{name}.pem"
        return keys

    def ask(self, request: RemotingCommand, *, tls: bool, name: str = "") -> tuple[int, str]:
        """Code and remark, over a connection of its own."""
        with closing(BlockingCalls(use_tls=tls, tls=self.keys(name))) as calls:
            answer = calls.invoke(f"127.0.0.1:{self.port}", request, 10_000)
        return answer.code, answer.remark or ""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path)
    try:
        yield running
    finally:
        running.end()


def test_who_meets_a_broker_that_trusts_nobody(broker: Broker) -> None:
    message = send_request("p", DEFAULT_TOPIC, 0, b"x", "", 1)
    signer = RequestSigner(USER, SignedTimes(now_ms, Random()))

    code, remark = broker.ask(signer.sign(message), tls=False)
    assert (code, "aclRequiresTls=true: connect with TLS" in remark) == (1, True), remark
    recorded = signer.sign(message)
    assert broker.ask(recorded, tls=True)[0] == 0
    code, remark = broker.ask(recorded, tls=True)
    assert (code, "came before" in remark) == (1, True), remark
    code, remark = broker.ask(sign(message, USER), tls=True)
    assert (code, "aclRequiresSignedTime=true" in remark) == (1, True), remark

    delete = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "nobodys"})
    assert broker.ask(delete, tls=True)[0] == 1
    assert broker.ask(delete, tls=True, name="ops")[0] == 0
    code, remark = broker.ask(signer.sign(message), tls=True, name="ops")
    assert (code, "use one account for both" in remark) == (1, True), remark
    refused = broker.metric("rmqha_acl_refused_total")
    assert {reason: count for reason, count in refused.items() if count} == {
        "aclRequiresTls": 1,
        "replay": 1,
        "aclRequiresSignedTime": 1,
        "unsigned": 1,
        "certificate": 1,
    }
    (line,) = [line for line in broker.output.read_text().splitlines() if "'nobodys'" in line]
    assert "adminadmin (ops.example) at 127.0.0.1:" in line

    namesrv = f"127.0.0.1:{broker.namesrv}"
    settings = ClientConfig(
        namesrv_addr=namesrv,
        credentials=USER,
        sign_only_over_tls=True,
        use_tls=True,
        tls=broker.keys(),
    )
    with BlockingClient(settings) as client:
        for _ in range(3):
            client.send(Message(DEFAULT_TOPIC, b"signed anew each time"))
    plain = ClientConfig(namesrv_addr=namesrv, credentials=USER)
    with BlockingClient(plain) as client, pytest.raises(MQClientError, match="aclRequiresTls"):
        client.send(Message(DEFAULT_TOPIC, b"given away"))
