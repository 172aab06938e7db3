"""RocketMQ 5.3.3's client sends, recalls and receives timer messages at a broker of rmq-ha."""

from __future__ import annotations

import subprocess

from tests.interop.conversation import compiled_java
from tests.interop.rig import Rig
from tests.interop.test_controller import PEER5, pytestmark  # noqa: F401


def test_javas_client_sends_recalls_and_receives(rig: Rig) -> None:
    namesrv = rig.namesrv()
    rig.broker(
        "master-sync.conf",
        "m",
        namesrv=namesrv,
        brokerRole="ASYNC_MASTER",
        timerWheelEnable="true",
    )
    command = compiled_java("Timer5", rig.directory / "timer5", PEER5)
    done = subprocess.run(
        [*command, namesrv, "Timers"], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    late_ms = dict(line.split(" ") for line in done.stdout.splitlines()[-3:])
    assert set(late_ms) == {"seconds", "millis", "time"}
    # A delay counts from the arrival at the broker, which is later than the client's clock says.
    assert int(late_ms["time"]) >= 0
