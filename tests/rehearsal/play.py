"""The rehearsal: from nothing to a pair that has been through everything, command by command."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

from rmq_ha.base.host.ports import free_ports
from tests.rehearsal.manager import Manager
from tests.rehearsal.traffic import HOURS, Day

ROOT = Path(__file__).parents[2]
TOPIC, GROUP = "Orders", "shipping"
NEWER = "0.1.999"
LONG_S = 180.0


class Play(ExitStack):
    """
    :ivar hour_s: seconds that an hour of the day takes.
    """

    def __init__(self, directory: Path, hour_s: float, busiest: float) -> None:
        super().__init__()
        self.directory = directory
        self.hour_s, self.busiest = hour_s, busiest
        self.manager = Manager(directory)
        self.callback(self.manager.close)
        base = free_ports(40)
        # What `init` writes for a trial on one machine, moved to where nobody else is.
        self.moved = {9876: base, 9877: base + 1, 10911: base + 8, 11011: base + 24}
        statuses = (5558, 5568, 5557, 5567)
        self.moved |= {port: base + 32 + number for number, port in enumerate(statuses)}
        self.names = f"127.0.0.1:{base};127.0.0.1:{base + 1}"
        self.ports = {"broker-master": base + 34, "broker-slave": base + 35}
        self.shown: list[str] = []
        self._number = 0

    # ------------------------------------------------------------ what a step is made of

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        self._number += 1
        began = time.monotonic()
        self.say(f"\n{self._number}. {what}")
        yield
        self.say(f"   done in {time.monotonic() - began:.1f} s")

    def say(self, line: str) -> None:
        self.shown.append(line)
        print(line, flush=True)

    def type(self, line: str, code: int = 0, quiet: bool = False) -> str:
        """One command, as an operator types it."""
        if not quiet:
            self.say(f"   $ {line.replace(str(self.directory), '.')}")
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.directory,
            env={**self.manager.environ, "NAMESRV_ADDR": self.names},
            capture_output=True,
            text=True,
            timeout=LONG_S * 2,
            check=False,
        )
        text = done.stdout + done.stderr
        assert done.returncode == code, f"{line}\n{text}\n{self._logs()}"
        return text

    def _logs(self) -> str:
        return "\n".join(
            f"--- {unit.name}\n{unit.log.read_text()[-2500:]}"
            for unit in self.manager.units.values()
            if unit.log.exists()
        )

    def until(self, is_so: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + LONG_S
        while not is_so():
            assert time.monotonic() < deadline, f"{what}\n{self._logs()}"
            time.sleep(0.1)

    def get(self, name: str, path: str) -> str:
        url = f"http://127.0.0.1:{self.ports[name]}{path}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return f"{answer.status} {answer.read().decode()}"
        except urllib.error.HTTPError as error:
            return f"{error.code} {error.read().decode()}"
        except OSError as error:
            return str(error)

    # ------------------------------------------------------------ the steps

    def run(self) -> None:
        self.begin()
        day = Day(self.names, TOPIC, self.hour_s, self.busiest)
        self.callback(day.over.set)
        day.start()
        self.live_through(day)
        self.fill_the_disk(day)
        self.renew(day)
        self.lose_the_master(day)
        self.bring_it_back(day)
        self.upgrade(day)
        self.back_up_and_restore(day)
        self.count(day)

    def begin(self) -> None:
        with self.step("From nothing: files, a check of them, four services"):
            self._small_disk()
            self.type("rmqha-admin init conf --pair --data data")
            self._certificate(days=20)
            for path in sorted((self.directory / "conf").glob("*.properties")):
                self._settle(path)
            for name, program in (
                ("namesrv-1", "rmqha-namesrv"),
                ("namesrv-2", "rmqha-namesrv"),
                ("broker-master", "rmqha-broker"),
                ("broker-slave", "rmqha-broker"),
            ):
                command = [program, "--config", f"conf/{name}.properties"]
                self.type(" ".join([*command, "--check"]))
                own = str(Path(sys.executable).with_name(program))
                self.manager.add(name, own, *command[1:])
                self.type(f"systemctl start {name}")
            self.type(f"rmqha-admin topic create {TOPIC} --queues 4")
            self.until(lambda: self._follows("broker-master"), "the slave follows")

    def _settle(self, path: Path) -> None:
        """Ports of this run, small files, certificates."""
        text = path.read_text()
        for usual, own in self.moved.items():
            text = re.sub(rf"(?<!\d){usual}(?!\d)", str(own), text)
        if path.name.startswith("broker"):
            text += (
                "mappedFileSizeCommitLog=4194304\nmaxHashSlotNum=5000\nmaxIndexNum=20000\n"
                "slaveTimeout=1000\nhaSendHeartbeatInterval=1000\n"
                "tls.test.mode.enable=false\ntls.server.mode=permissive\n"
                f"tls.server.certPath={self.directory}/server.pem\n"
                f"tls.server.keyPath={self.directory}/server.key\n"
            )
        path.write_text(text)

    def _certificate(self, days: int) -> None:
        ends = datetime.now(UTC) + timedelta(days=days)
        issued = trustme.CA().issue_cert("127.0.0.1", not_after=ends)
        issued.private_key_pem.write_to_path(str(self.directory / "server.key.new"))
        (self.directory / "server.pem.new").write_bytes(
            b"".join(pem.bytes() for pem in issued.cert_chain_pems)
        )
        for name in ("server.key", "server.pem"):
            (self.directory / f"{name}.new").replace(self.directory / name)

    def _small_disk(self) -> None:
        """A file system of its own for the stores, where we may mount one."""
        data = self.directory / "data"
        data.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(data)]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        self.has_disk = done.returncode == 0
        if self.has_disk:
            self.callback(subprocess.run, ["umount", "-l", str(data)], check=False)

    def _follows(self, name: str) -> bool:
        return self.get(name, "/healthz").startswith("200") and ": 1 slaves" in self.get(
            name, "/healthz"
        )

    def live_through(self, day: Day) -> None:
        with self.step(f"A day of traffic, an hour of it in {self.hour_s:g} s"):
            time.sleep(self.hour_s * HOURS * 0.75)
            day.so_many_more(20)
            self.type("rmqha-admin ha status")
            text = self.type("rmqha-admin stats")
            self.say("   " + "\n   ".join(text.strip().splitlines()))
            self.type(f"rmqha-admin consume {TOPIC} -g {GROUP} --until-end --json > first.jsonl")
            self.say(f"   {len(day.kept)} SEND_OK, {self._read('first.jsonl')} read")

    def _read(self, *names: str) -> int:
        return len(self._bodies(*names))

    def _bodies(self, *names: str) -> set[str]:
        found = set()
        for name in names:
            for line in (self.directory / name).read_text().splitlines():
                body = json.loads(line).get("body")
                if body:
                    found.add(body)
        return found

    def fill_the_disk(self, day: Day) -> None:
        with self.step("The disk fills: puts are refused, and go on when there is room again"):
            if not self.has_disk:
                self.say("   left out: this user may not mount a small file system")
                return
            ballast = self.directory / "data" / "ballast"
            usage = shutil.disk_usage(self.directory / "data")
            free = usage.free - usage.total // 50
            with ballast.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, free)
            self.say(f"   a file of {free >> 20} MiB is beside the stores")
            self.until(lambda: self.get("broker-master", "/healthz").startswith("503"), "503")
            self.say("   /healthz: " + self.get("broker-master", "/healthz").splitlines()[0])
            text = self.type("rmqha-admin doctor broker-a --look-again 0", code=1)
            assert "disk-full" in text, text
            ballast.unlink()
            self.say("   the file is gone")
            self.until(lambda: self.get("broker-master", "/healthz").startswith("200"), "200")
            day.so_many_more(10)

    def renew(self, day: Day) -> None:
        with self.step("The certificate is renewed under load"):
            before = self._ends("broker-master")
            self._certificate(days=365)
            self.type("systemctl reload broker-master && systemctl reload broker-slave")
            self.until(lambda: self._ends("broker-master") > before, "the new certificate")
            self.say(f"   it ends {(self._ends('broker-master') - before) / 86400:.0f} days later")
            day.so_many_more(10)

    def _ends(self, name: str) -> float:
        found = re.findall(
            r"^rmqha_certificate_end_seconds\{[^}]*\} (\S+)", self.get(name, "/metrics"), re.M
        )
        return float(found[0]) if found else 0.0

    def lose_the_master(self, day: Day) -> None:
        with self.step("The master is killed; its slave is promoted"):
            self.until(lambda: self._follows("broker-master"), "the slave follows")
            self.manager.units["broker-master"].kill()
            self.say("   $ kill -9 (the master)")
            killed = time.monotonic()
            text = self.type(
                "rmqha-admin promote --config conf/broker-slave.properties --yes"
                " --restart 'systemctl restart broker-slave'"
            )
            self.say("   " + "\n   ".join(text.strip().splitlines()[-3:]))
            count = len(day.kept) + len(day.taken)
            self.until(lambda: len(day.kept) + len(day.taken) > count, "sends go on")
            self.say(f"   sends go on {time.monotonic() - killed:.1f} s after the kill")

    def bring_it_back(self, day: Day) -> None:
        with self.step("The old master comes back as a slave"):
            self.type(
                "rmqha-admin demote --config conf/broker-master.properties --yes"
                " --restart 'systemctl restart broker-master'"
            )
            self.until(lambda: self._follows("broker-slave"), "the old master follows")
            day.so_many_more(10)

    def upgrade(self, day: Day) -> None:
        with self.step(f"An upgrade, to {NEWER}: the slave first, then the roles change"):
            self._new_code()
            slave, master = "broker-master", "broker-slave"  # the names of their files
            self._take_new_code(slave)
            self.type(f"systemctl restart {slave}")
            self.until(lambda: self._follows(master), "the new version follows")
            day.so_many_more(5)
            self.type(f"systemctl stop {master}")
            self.type(
                f"rmqha-admin promote --config conf/{slave}.properties --yes"
                f" --restart 'systemctl restart {slave}'"
            )
            self._take_new_code(master)
            self.type(
                f"rmqha-admin demote --config conf/{master}.properties --yes"
                f" --restart 'systemctl restart {master}'"
            )
            self.until(lambda: self._follows(slave), "the new version follows")
            for name in (slave, master):
                assert f'version="{NEWER}"' in self.get(name, "/metrics")
            self.say(f"   rmqha_build_info of both says {NEWER}")
            day.so_many_more(10)

    def _new_code(self) -> None:
        skip = shutil.ignore_patterns("__pycache__", "spark")
        shutil.copytree(ROOT / "rmq_ha", self.directory / "new" / "rmq_ha", ignore=skip)
        path = self.directory / "new" / "rmq_ha" / "__init__.py"
        path.write_text(path.read_text() + f'\n__version__ = "{NEWER}"\n')

    def _take_new_code(self, name: str) -> None:
        unit = self.manager.units[name]
        start = "from rmq_ha.ops.app.foreground import broker; broker()"
        unit.command = [sys.executable, "-c", start, "--config", f"conf/{name}.properties"]
        unit.environ["PYTHONPATH"] = str(self.directory / "new")

    def back_up_and_restore(self, day: Day) -> None:
        with self.step("A backup while it runs, and a broker made of it"):
            safe = set(day.kept)
            self.type("rmqha-admin backup backup --config conf/broker-master.properties")
            text = (self.directory / "conf" / "broker-master.properties").read_text()
            base = free_ports(8)
            own = (
                f"listenPort={base + 3}\nembeddedNamesrvPort={base}\nmetricsPort=0\n"
                "brokerRole=ASYNC_MASTER\nbrokerId=0\nstorePathRootDir=restored\n"
            )
            keys = {line.partition("=")[0] for line in own.splitlines()} | {"namesrvAddr"}
            kept = [line for line in text.splitlines() if line.partition("=")[0] not in keys]
            (self.directory / "conf" / "restored.properties").write_text(
                "\n".join(kept) + "\n" + own
            )
            self.type("rmqha-admin restore backup --config conf/restored.properties")
            program = str(Path(sys.executable).with_name("rmqha-broker"))
            self.manager.add("restored", program, "--config", "conf/restored.properties")
            self.type("systemctl start restored")
            self.type(
                f"rmqha-admin -n 127.0.0.1:{base} consume {TOPIC} -g audit --until-end --json"
                " > restored.jsonl"
            )
            lacks = safe - self._bodies("restored.jsonl")
            assert not lacks, f"the backup lacks {len(lacks)}: {sorted(lacks)[:3]}"
            self.say(f"   all {len(safe)} SEND_OK before it are in it")
            self.type("systemctl stop restored")

    def count(self, day: Day) -> None:
        with self.step("The day is over: everything that was SEND_OK is read"):
            day.over.set()
            day.join(60)
            self.type(f"rmqha-admin consume {TOPIC} -g {GROUP} --until-end --json > last.jsonl")
            read = self._bodies("first.jsonl", "last.jsonl")
            lost = set(day.kept) - read
            attempts = sum(day.failures.values())
            self.say(
                f"   {len(day.kept)} SEND_OK, {len(day.taken)} taken by one machine, {attempts}"
                f" attempts failed and were repeated; {len(read)} read, {len(lost)} lost"
            )
            assert not lost, sorted(lost)[:5]
            lives = {name: unit.lives for name, unit in self.manager.units.items()}
            self.say(f"   signs of life to the watchdog: {lives}")
