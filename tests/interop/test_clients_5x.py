"""RocketMQ 5.3.3's remoting client with a name server and a broker of ours: docs/clients-5x.md."""

from __future__ import annotations

import subprocess

from tests.interop.conversation import compiled_java
from tests.interop.recorder import Recorder
from tests.interop.rig import Rig
from tests.interop.test_controller import PEER5, pytestmark  # noqa: F401
from tests.unit.client.test_clients_5x import RECORDED

ELSEWHERE = "127.0.0.2"
"""Loopback, too: what the broker says it is, so that the recorder is found there."""


def test_all_that_5_3_3_asks_is_answered_as_the_document_says(rig: Rig) -> None:
    """The program does what applications do, once each; a recorder looks at codes and answers."""
    namesrv = rig.namesrv()
    broker = rig.broker(
        "master-sync.conf",
        "m",
        namesrv=namesrv,
        brokerRole="ASYNC_MASTER",
        brokerIP1=ELSEWHERE,
        enablePropertyFilter="true",
        messageDelayLevel=" ".join(["1s"] * 18),
        transactionTimeOut=500,
        transactionCheckInterval=500,
    )
    port = int(broker.address.rpartition(":")[2])
    watched = [
        Recorder((ELSEWHERE, port), ("127.0.0.1", port)),
        Recorder((ELSEWHERE, rig.ports(1)), ("127.0.0.1", int(namesrv.rpartition(":")[2]))),
    ]
    command = compiled_java("Client5", rig.directory / "client5", PEER5)
    done = subprocess.run(
        [*command, watched[1].address, "Five"],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    for recorder in watched:
        recorder.close()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    answers = watched[0].answers | watched[1].answers
    assert answers.keys() == RECORDED.keys()
    for code, found in answers.items():
        said = RECORDED[code][5]
        allowed = set() if said == "one-way" else {int(word) for word in said.split(",")}
        assert found <= allowed, f"{code}: {found}"
        assert bool(found) is bool(allowed), f"{code}: nobody answered"
