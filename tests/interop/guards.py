"""
Servers that ask everybody who they are: accounts, quotas and limits on connections.

`Guard` has all that tests need of it, `OPEN` is the one of servers that ask nobody.
"""

from __future__ import annotations

import re
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmq_ha.base.remoting.signing import Credentials
from tests.interop.rig import Rig, Server
from tests.interop.wire import Wire

ADMIN = Credentials("adminadmin", "adminsecret")
LIMITS = {
    "maxRequestsPerSecondPerIp": 2000,
    "maxRequestsPerSecondPerAccount": 1000,
    "maxBytesPerSecondPerIp": 8_000_000,
    "maxBytesPerSecondPerAccount": 4_000_000,
    "maxConnections": 120,
    "maxConnectionsPerIp": 100,
}
"""What some twenty clients of one program do not meet."""
LOGBACK = "<configuration><root level='OFF'/></configuration>\n"
OF_ADMINS = f"""globalWhiteRemoteAddresses: []
accounts:
- accessKey: {ADMIN.access_key}
  secretKey: {ADMIN.secret_key}
  admin: true
"""
OBJECTIONS = ("acl_refused_total", "held_back_connections_total", "refused_connections_total")
_SAMPLE = re.compile(r'^(\w+)\{(?:.*,)?reason="(\w+)".*\} (\d+)', re.MULTILINE)


def account(credentials: Credentials, topics: list[str], groups: list[str]) -> str:
    """One that may what is listed and nothing else, as `plain_acl.yml` has it."""
    lines = [
        f"- accessKey: {credentials.access_key}",
        f"  secretKey: {credentials.secret_key}",
        "  defaultTopicPerm: DENY",
        "  defaultGroupPerm: DENY",
    ]
    for key, entries in (("topicPerms", topics), ("groupPerms", groups)):
        lines += [f"  {key}:", *(f"  - '{entry}'" for entry in entries)] if entries else []
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Guard:
    """
    How servers are started, and who may use them.

    :ivar directory: of `plain_acl.yml` and of mqadmin's keys; None: nobody is asked.
    :ivar metrics: port of each server by its name.
    """

    directory: Path | None = None
    metrics: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, directory: Path, accounts: str) -> Guard:
        """:param accounts: entries beside the admin's."""
        (directory / "conf").mkdir(parents=True)
        (directory / "conf" / "logback_tools.xml").write_text(LOGBACK)
        keys = f"accessKey: {ADMIN.access_key}\nsecretKey: {ADMIN.secret_key}\n"
        (directory / "conf" / "tools.yml").write_text(keys)
        made = cls(directory)
        made.write(accounts)
        return made

    def write(self, accounts: str) -> None:
        """Change the accounts; servers look every 2 s."""
        assert self.directory
        path = self.directory / "plain_acl.yml"
        path.touch(mode=0o600)
        path.write_text(OF_ADMINS + accounts)

    def namesrv(self, rig: Rig) -> str:
        """Start the name server."""
        return rig.namesrv(**self._settings(rig, "ns"))

    def broker(self, rig: Rig, conf: str, name: str, **settings: Any) -> Server:
        """Start a broker, also once more."""
        guarded = self._settings(rig, name)
        if guarded:
            guarded |= {"aclStrict": "true", **LIMITS}
            guarded |= {"aclAccessKey": ADMIN.access_key, "aclSecretKey": ADMIN.secret_key}
        return rig.broker(conf, name, **{**guarded, **settings})

    def _settings(self, rig: Rig, name: str) -> dict[str, Any]:
        if self.directory is None:
            return {}
        if name not in self.metrics:
            self.metrics[name] = rig.ports(1)
        return {
            "aclEnable": "true",
            "aclDirectory": self.directory,
            "metricsPort": self.metrics[name],
        }

    def wire(self, server: Server) -> Wire:
        """A connection of an admin."""
        return Wire(server.address, credentials=ADMIN if self.directory else None)

    def objections(self) -> dict[tuple[str, str, str], int]:
        """
        What was refused or had to wait at the servers since they started.

        :returns: how often, by server, metric and reason.
        """
        found = {}
        for name, port in self.metrics.items():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                page = answer.read().decode()
            samples = [
                (metric, reason, int(count))
                for metric, reason, count in _SAMPLE.findall(page)
                if metric.endswith(OBJECTIONS)
            ]
            assert samples, page
            found.update({(name, metric, reason): n for metric, reason, n in samples if n})
        return found


OPEN = Guard()
