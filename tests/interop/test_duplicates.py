"""Java's client repeats a send at a broker of ours that compares ids, and notices nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.interop.conversation import compiled_java
from tests.interop.rig import Rig
from tests.interop.wire import Wire

QUEUES = 4


def test_what_java_s_client_sends_again_is_stored_once(rig: Rig, tmp_path: Path) -> None:
    namesrv = rig.namesrv()
    broker = rig.broker("master-async.conf", "ours", namesrv=namesrv, duplicateWindowMillis=600000)
    with Wire(broker.address) as wire:
        wire.create_topic("Twice", QUEUES)
    program = [*compiled_java("SentTwice", tmp_path), namesrv]
    done = subprocess.run(program, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    firsts, again = told[:3], told[3:]
    assert [each["what"] for each in firsts] == ["one", "delayed", "batch"]
    assert again == firsts
    assert {each["status"] for each in told} == {"SEND_OK"}

    def bodies() -> list[bytes]:
        with Wire(broker.address) as wire:
            found = [wire.pull_all("Twice", number) for number in range(QUEUES)]
        return sorted(record.body for records in found for record in records)

    expected = [b"a", b"b", b"c", b"delayed", b"one"]
    rig.until(lambda: len(bodies()) >= len(expected), 20, "the delayed message", broker)
    assert bodies() == expected
