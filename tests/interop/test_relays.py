"""Operators reach running clients: resets, questions, messages on demand; and traces.

A Java and a Go consumer run all the time; everything is asked of the broker that they use.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from tests.interop.conversation import compiled_java
from tests.interop.rig import ALL_JAVA, PEER, Rig
from tests.interop.wire import Refused, Wire, unique_id

TOPIC, COUNT, QUEUES = "Relayed", 8, 4
JAVA, GO = "g-java", "g-go"


class Consumer:
    """A client of the rig that consumes until it is stopped."""

    def __init__(self, output: Path, *arguments: Any) -> None:
        self._output = output
        with output.open("w") as sink:
            self._process = subprocess.Popen(
                [str(PEER), *map(str, arguments)], stdout=sink, stderr=subprocess.DEVNULL
            )

    def received(self) -> list[tuple[int, int]]:
        """Queue and offset of every delivery."""
        lines = [line for line in self._output.read_text().splitlines() if line.endswith("}")]
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [(item["queueId"], item["queueOffset"]) for item in found if "queueOffset" in item]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(10)


def produce(wire: Wire) -> list[Any]:
    """Two messages a queue; where they are."""
    requests = [
        send_request(
            "relays", TOPIC, number % QUEUES, b"body",
            f"UNIQ_KEY\x01{unique_id(str(number))}\x02TAGS\x01T", int(time.time() * 1000),
        )
        for number in range(COUNT)
    ]  # fmt: skip
    found = []
    for answer in wire.exchange(requests):
        ext = answer.ext or {}
        found.append(
            SimpleNamespace(id=ext["msgId"], place=(int(ext["queueId"]), int(ext["queueOffset"])))
        )
    return found


@pytest.fixture(scope="module")
def world(shared_rig: Rig) -> Iterator[Any]:
    """A cluster with both consumers at the end of the topic, their offsets committed."""
    rig = shared_rig
    namesrv = rig.namesrv()
    master = rig.broker("master-async.conf", "m", namesrv=namesrv, traceTopicEnable="true")
    with Wire(master.address) as wire:
        wire.create_topic(TOPIC, QUEUES)
        sent = produce(wire)
    where = ["--namesrv", namesrv, "--topic", TOPIC]
    endless = ["--count", 1_000_000, "--verbose"]
    java = Consumer(
        rig.directory / "java.out",
        "consume", *where, *endless, "--group", JAVA, "--timeout", 300, "--from", "first",
    )  # fmt: skip
    go = Consumer(
        rig.directory / "go.out", "go", "consume", *where, *endless, "--group", GO,
        "--timeout", "300s",
    )  # fmt: skip
    found = SimpleNamespace(rig=rig, ns=namesrv, master=master, sent=sent, java=java, go=go)
    try:
        rig.until(lambda: len(set(java.received())) == COUNT, 60, "Java's consumer", master)
        rig.until(lambda: len(set(go.received())) == COUNT, 60, "Go's consumer", master)
        for group in (JAVA, GO):
            rig.until(lambda g=group: committed(found, g) == COUNT, 30, f"offsets of {group}")
        yield found
    finally:
        java.stop()
        go.stop()


def committed(world: Any, group: str) -> int:
    """The sum of a group's offsets on the topic; -1 while one is missing."""
    total = 0
    with Wire(world.master.address) as wire:
        table = wire.table(RequestCode.GET_ALL_CONSUMER_OFFSET)["offsetTable"]
        offsets = table.get(f"{TOPIC}@{group}", {})
        total = sum(offsets.values())
    return total if len(offsets) == QUEUES else -1


def client_id(world: Any, group: str) -> str:
    with Wire(world.master.address) as wire:
        answer = wire.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=group)
    (connection,) = fastjson.parse(answer.body or b"")["connectionSet"]
    return str(connection["clientId"])


def ask(world: Any, code: int, **ext: Any) -> Any:
    with Wire(world.master.address, 20) as wire:
        return fastjson.parse(wire.call(code, **ext).body or b"{}")


def test_running_info(world: Any) -> None:
    """307: each client tells of itself; Java with its stacks when asked for them."""
    ours = client_id(world, JAVA)
    info = ask(world, 307, consumerGroup=JAVA, clientId=ours, jstackEnable="true")
    assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert "java.lang" in info["jstack"]
    assert len(info["mqTable"]) >= QUEUES
    request = RemotingCommand(307, {"consumerGroup": GO, "clientId": client_id(world, GO)})
    with Wire(world.master.address) as wire:
        (answer,) = wire.exchange([request])
    # Its body is missing, and the remark says why, when a rate of its is not a number.
    assert (answer.code, answer.language) == (0, "GO")
    assert answer.body or "NaN" in (answer.remark or ""), answer


def test_a_client_that_is_not_there(world: Any) -> None:
    for code in (307, 309):
        with pytest.raises(Refused) as refused:
            ask(world, code, consumerGroup=JAVA, clientId="nobody", msgId=world.sent[0].id)
        assert refused.value.code == 1


def test_consume_directly(world: Any) -> None:
    """309: the client consumes one message more, and says how that went."""
    before = len(world.java.received())
    one = world.sent[3]
    result = ask(world, 309, consumerGroup=JAVA, clientId=client_id(world, JAVA), msgId=one.id)
    assert (result["consumeResult"], result["order"]) == ("CR_SUCCESS", False)
    world.rig.until(lambda: len(world.java.received()) == before + 1, 5, "the delivery")
    assert world.java.received()[-1] == one.place
    text = world.rig.mqadmin(
        "queryMsgById", "-n", world.ns, "-i", one.id, "-g", JAVA,
        "-d", client_id(world, JAVA),
    )  # fmt: skip
    assert "CR_SUCCESS" in text


def test_consumer_status(world: Any) -> None:
    """223: where the client itself thinks it is."""
    table = ask(world, 223, topic=TOPIC, group=JAVA)["consumerTable"]
    (offsets,) = table.values()
    assert sum(offsets.values()) == COUNT
    assert {dict(queue)["queueId"] for queue in offsets} == set(range(QUEUES))


def test_spans_and_units_of_queues(world: Any) -> None:
    """303, 321 and 308 on what everybody consumed."""
    spans = ask(world, 303, topic=TOPIC, group=JAVA)["consumeTimeSpanSet"]
    assert len(spans) == QUEUES
    for span in spans:
        assert span["consumeTimeStamp"] == span["maxTimeStamp"] >= span["minTimeStamp"] > 0
        assert span["delayTime"] == 0
    units = ask(world, 321, topic=TOPIC, queueId=1, index=1, count=10, consumerGroup=JAVA)
    assert (units["minQueueIndex"], units["maxQueueIndex"]) == (0, COUNT // QUEUES)
    assert len(units["queueData"]) == 1
    assert units["subscriptionData"]["topic"] == TOPIC
    slowest = ask(world, 308, topic=TOPIC, compareGroup=JAVA, filterGroups="")
    assert slowest["correctionOffsets"] == dict.fromkeys(range(QUEUES), COUNT // QUEUES)
    text = world.rig.mqadmin(
        "queryCq",
        "-n",
        world.ns,
        "-t",
        TOPIC,
        "-q",
        1,
        "-i",
        0,
        "-c",
        5,
        "-b",
        world.master.address,
    )
    assert len(re.findall("physicOffset", text)) == COUNT // QUEUES


def test_clone_offsets(world: Any) -> None:
    """314; mqadmin's command of that name needs nothing but 208 and 15."""
    ask(world, 314, srcGroup=JAVA, destGroup="g-clone", topic=TOPIC, offline="false")
    assert committed(world, "g-clone") == COUNT


def test_reset_of_a_group_that_is_not_online(world: Any) -> None:
    """222 says so; mqadmin then commits the offsets itself."""
    with Wire(world.master.address) as wire:
        for queue in range(QUEUES):
            wire.commit("g-offline", TOPIC, queue, 2)
        with pytest.raises(Refused) as refused:
            wire.call(222, topic=TOPIC, group="g-offline", timestamp=-1, isForce="true")
        assert refused.value.code == 206
    world.rig.mqadmin(
        "resetOffsetByTime", "-n", world.ns, "-g", "g-offline", "-t", TOPIC, "-s", "0"
    )
    assert committed(world, "g-offline") == 0


def test_traces_are_found(world: Any) -> None:
    """Producer and consumer with tracing switched on; mqadmin finds both halves by message id."""
    command = compiled_java("Traced", world.rig.directory / "traced")
    # The clients live until their traces are found: traces that wait when a client ends are lost.
    with subprocess.Popen(
        [*command, world.ns, TOPIC], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as clients:
        assert clients.stdout is not None
        told = json.loads(next(line for line in clients.stdout if line.startswith("{")))
        assert told["arrived"]

        def are_found() -> bool:
            text = world.rig.mqadmin("queryMsgTraceById", "-n", world.ns, "-i", told["id"])
            return "Pub" in text and "Sub" in text

        try:
            world.rig.until(are_found, 60, "both traces", world.master)
        finally:
            clients.communicate(timeout=30)


def test_reset_while_consuming(world: Any) -> None:
    """Both clients go back to the beginning and consume everything again; last, it takes 10 s."""
    java, go = len(world.java.received()), len(world.go.received())
    world.rig.mqadmin("resetOffsetByTime", "-n", world.ns, "-g", JAVA, "-t", TOPIC, "-s", "0")
    table = ask(world, 222, topic=TOPIC, group=GO, timestamp=0, isForce="true")["offsetTable"]
    assert set(table.values()) == {0}
    wanted = {item.place for item in world.sent}
    for consumer, before in ((world.java, java), (world.go, go)):
        world.rig.until(
            lambda c=consumer, b=before: wanted <= set(c.received()[b:]),
            40,
            "everything again",
            world.master,
        )


def test_settings_that_stay(world: Any) -> None:
    """What would let a peer choose paths or code is refused; the Java broker takes it."""
    if ALL_JAVA:
        pytest.skip("RocketMQ 4.9.7 does not refuse them")
    with Wire(world.master.address) as wire:
        for line in (b"storePathRootDir=/tmp/x", b"messageStorePlugIn=x", b"tls.server.mode=x"):
            with pytest.raises(Refused) as refused:
                wire.call(RequestCode.UPDATE_BROKER_CONFIG, line)
            assert refused.value.code == 16
