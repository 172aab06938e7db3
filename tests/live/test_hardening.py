"""docs/hardening.md to the letter: certificates, files, servers, topic, group, messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rmq_ha.base.host.ports import free_ports
from rmq_ha.testing.real_brokers import ServerProcess
from tests.kits.pages import COMMANDS, FILE, REPO, type_commands, with_ports

TEXT = (REPO / "docs" / "hardening.md").read_text()
SLAVE = {"brokerId=0": "brokerId=1", "SYNC_MASTER": "SLAVE"}


class Machines:
    """The three machines of the document, as loopback addresses of this one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        base = free_ports(12)
        self._ports = {"9876": base, "10911": base + 4, "5557": base + 8}
        self.files = {name: self.here(text) for name, text in FILE.findall(TEXT)}
        self.servers: list[ServerProcess] = []

    def here(self, text: str) -> str:
        """The document's words, with addresses and ports that this machine has."""
        return with_ports(text.replace("10.0.0.", "127.0.0."), self._ports)

    def type(self, block: str) -> str:
        """A block of commands of the document, in one shell; each of them has to succeed."""
        settings = {"XDG_CONFIG_HOME": str(self.directory / "settings")}
        script = f"set -e\n{self.here(block)}"
        done = type_commands(script, self.directory, seconds=120, environ=settings)
        assert done.returncode == 0, done.stdout + done.stderr + self.logs()
        return done.stdout

    def start(self, plugin: str, address: str, text: str) -> None:
        """A server with its own /etc/rocketmq and /var/lib/rocketmq."""
        home = self.directory / address
        (home / "tls").mkdir(parents=True)
        for name, copied in (("server.key", f"{address}.key"), ("server.pem", f"{address}.pem"),
                             ("ca.pem", "ca.pem")):  # fmt: skip
            (home / "tls" / name).write_bytes((self.directory / copied).read_bytes())
        for name in ("tls.properties", "plain_acl.yml"):
            (home / name).write_text(self.in_home(self.files[name], home))
        for path in home.rglob("*.*"):
            path.chmod(0o600)
        server = ServerProcess(home, plugin)
        self.servers.append(server)
        server.begin(self.in_home(text, home))
        server.wait()

    def in_home(self, text: str, home: Path) -> str:
        """All connections of this machine come from 127.0.0.1."""
        for key in ("namesrvAllowedBrokers", "haAllowedSlaves"):
            text = re.sub(rf"(?m)^{key}=.*$", f"{key}=127.0.0.1", text)
        return text.replace("/etc/rocketmq", str(home)).replace("/var/lib/rocketmq", str(home))

    def logs(self) -> str:
        return "".join(f"\n--- {s.directory.name}\n{s.output[-3000:]}" for s in self.servers)

    def stop(self) -> None:
        for server in self.servers:
            server.end()


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


def test_the_document_works_to_the_letter(machines: Machines) -> None:
    certificates, of_operator, of_application = COMMANDS.findall(TEXT)
    machines.type(certificates)
    master = machines.here("listenPort=10911\n") + machines.files["broker-a.properties"]
    slave = master.replace("haTrustedMasters=127.0.0.7", "haTrustedMasters=127.0.0.6")
    slave = re.sub(r"(?m)^(bindAddress|brokerIP[12])=.*$", r"\1=127.0.0.7", slave)
    for old, new in SLAVE.items():
        slave = slave.replace(old, new)
    try:
        machines.start("rmqnamesrv", "127.0.0.5", machines.files["namesrv.properties"])
        machines.start("rmqha", "127.0.0.6", master)
        machines.start("rmqha", "127.0.0.7", re.sub(r"(?m)^metricsPort=.*\n", "", slave))
        machines.type(of_operator.replace("rmqha-admin --context payments doctor\n", ""))
        assert "the first payment" in machines.type(of_application)
    finally:
        machines.stop()
