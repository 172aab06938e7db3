"""A store with waiting timer messages goes from RocketMQ 5.3.3 to us and back."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from pathlib import Path

from rmq_ha.base.store_format.commitlog import decode_records
from rmq_ha.client.lookup.requests import pull_request, send_request
from tests.interop.pairs import ADMIN
from tests.interop.rig import SMALL, Rig, Server
from tests.interop.test_controller import PEER5, pytestmark  # noqa: F401
from tests.interop.wire import PULL_FOUND, Wire

TOPIC = "Timers"
SETTINGS = {"timerWheelEnable": "true", "recallMessageEnable": "true"}


def java_5(rig: Rig, directory: Path) -> Server:
    """RocketMQ 5.3.3 on the store in a directory."""
    directory.mkdir(exist_ok=True)
    port = rig.ports(4) + 2
    command = [str(PEER5), "broker", "--quick", "--conf", str(SMALL / "master-async.conf")]
    command += ["--dir", str(directory), "--jvm=-XX:+UnlockDiagnosticVMOptions"]
    for key, value in {"listenPort": str(port), **SETTINGS}.items():
        command += ["--set", f"{key}={value}"]
    return rig._start(command, f"127.0.0.1:{port}", directory, java=True)


def bodies(address: str) -> Counter[str]:
    """How often each message is in the topic's queue."""
    found: Counter[str] = Counter()
    offset = 0
    with Wire(address, 20) as wire:
        while True:
            (answer,) = wire.exchange([pull_request("readers", TOPIC, 0, offset)])
            if answer.code != PULL_FOUND:
                return found
            for record in decode_records(answer.body or b""):
                found[record.body.decode()] += 1
                offset = record.queue_offset + 1


def test_a_store_goes_to_us_and_back_and_no_message_comes_twice(rig: Rig) -> None:
    """Each broker delivers a message; one was recalled before the store changed hands."""
    java = java_5(rig, rig.directory / "m")
    delays = {"javas": 300, "ours": 25_000, "waits": 80_000, "recalled": 81_000}
    with Wire(java.address, 20) as wire:
        for body, delay in delays.items():
            text = f"TIMER_DELAY_MS\x01{delay}\x02UNIQ_KEY\x01K{body}"
            (answer,) = wire.exchange([send_request("p", TOPIC, 0, body.encode(), text, 1)])
            assert answer.code == 0, answer.remark
        assert answer.ext is not None
        wire.call(370, topic=TOPIC, recallHandle=answer.ext["recallHandle"])
    sent = time.monotonic()
    rig.until(lambda: bodies(java.address) == {"javas": 1}, 20, "a delivery by Java", java)
    java.stop()
    ours = rig.broker("master-async.conf", "m", **SETTINGS)
    rig.until(lambda: bodies(ours.address)["ours"] == 1, 60, "a delivery by us", ours)
    assert bodies(ours.address) == {"javas": 1, "ours": 1}
    ours.stop()
    config = str(ours.directory / "broker.properties")
    command = [ADMIN, "store", "export-timer", "-c", config, "--yes", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout.splitlines()[-1])["waiting"] == 1
    java = java_5(rig, rig.directory / "m")
    limit = 110 - (time.monotonic() - sent)
    rig.until(lambda: bodies(java.address)["waits"] == 1, limit, "what waits", java)
    time.sleep(3)
    assert bodies(java.address) == {"javas": 1, "ours": 1, "waits": 1}
