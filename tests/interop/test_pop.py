"""RocketMQ 5.3.3's client pops messages from a broker of rmq-ha."""

from __future__ import annotations

import re
import subprocess

from tests.interop.conversation import compiled_java
from tests.interop.rig import Rig
from tests.interop.test_controller import PEER5, pytestmark  # noqa: F401


def test_javas_client_pops_and_a_message_that_fails_twice_comes_again(rig: Rig) -> None:
    namesrv = rig.namesrv()
    broker = rig.broker(
        "master-sync.conf", "m", namesrv=namesrv, brokerRole="ASYNC_MASTER", popEnable="true"
    )
    command = compiled_java("Pop5", rig.directory / "pop5", PEER5)
    done = subprocess.run(
        [*command, namesrv, broker.address, "PopT", "PopG"],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    told = re.findall(r"^(m\d) (\d) (\S+) (\d)$|^lag (\d+)$", done.stdout, re.MULTILINE)
    *came, (*_, lag) = told
    assert sorted((body, times) for body, times, *_ in came) == [
        *((f"m{number}", "0") for number in range(4)),
        ("m3", "1"),
        ("m3", "2"),
        *((f"m{number}", "0") for number in range(4, 8)),
    ]
    assert {topic for _, _, topic, *_ in came} == {"PopT"}
    assert [queue for _, times, _, queue, _ in came if times != "0"] == ["0", "0"]
    assert lag == "0"
