"""A pair in controller mode to measure: ours at our controller, or Java 5.3.3's at its own."""

from __future__ import annotations

from pathlib import Path

from measure import Ends

from tests.interop.rig import Rig
from tests.interop.test_controller import PEER5
from tests.interop.test_controller_pairs import Pair

STOCK = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 300_000 * 20,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}


class StockPair(Pair):
    """With stock file sizes, and both of Java's compilers."""

    def boot(self, name: str) -> None:
        """As `Pair.boot`."""
        self.settings = dict(STOCK)
        if self.kinds[name] != "java":
            super().boot(name)
            return
        port, directory = self.port(name), self.rig.directory / name
        directory.mkdir(exist_ok=True)
        command = [str(PEER5), "broker", "--heap", "1g", "--dir", str(directory)]
        command += ["--conf", str(PEER5.parent / "conf" / f"controller-{name}.conf")]
        command += ["--namesrv", self.namesrv, "--controller", self.sets.address]
        settings = {"listenPort": port, "haListenPort": port + 1, **self.settings}
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        address = f"127.0.0.1:{port}"
        self.servers[name] = self.rig._start(command, address, directory, java=True, wait=False)


def controlled_pair(rig: Rig, side: str, _: Path) -> Ends:
    """Both in sync, every put waits for both."""
    pair = StockPair(rig, side, side, side)
    pair.in_sync()
    address = pair.sets.master
    assert address is not None
    slave, master = sorted(pair.servers.values(), key=lambda one: one.address == address)
    return Ends(rig, address, {"master": master, "slave": slave})
