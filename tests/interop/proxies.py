"""Java's own gRPC proxy in front of brokers of ours, and the SDK drivers of the gRPC rig.

`../shared/peerg` (or RMQ_HA_PEERG) has proxy 5.3.3. Other versions come from Maven Central into the
cache of this module, once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

from tests.interop.rig import REPO, Rig, Server

PEERG = Path(os.environ.get("RMQ_HA_PEERG", REPO.parent / "shared" / "peerg")) / "peerg"
OLDEST = "5.3.3"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rmq-ha-proxies"


def missing() -> str | None:
    """Why the gRPC rig cannot run here, or None."""
    if not PEERG.exists():
        return f"no gRPC rig at {PEERG} (set RMQ_HA_PEERG)"
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            return f"no {tool} on this machine"
    parts = [_rig().part(name) / ".made" for name in ("proxy-lib", "proxy", "py", "tls")]
    return None if all(part.exists() for part in parts) else f"`{PEERG} install` has not run"


def _rig() -> Any:
    """The program `peerg` as a module."""
    spec = spec_from_loader("peerg", SourceFileLoader("peerg", str(PEERG)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _classes(version: str) -> list[Path]:
    """
    Folders of the proxy's classes: those that listen on loopback, the rig's program, all jars.

    :raises subprocess.CalledProcessError: Maven cannot resolve the version.
    """
    rig = _rig()
    lib, code = rig.part("proxy-lib"), rig.part("proxy")
    if version == OLDEST:
        return [code / "loopback", code / "classes", lib]
    home = CACHE / version
    if not (home / ".made").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        pom = (PEERG.parent / "pom.xml").read_text().replace(OLDEST, version)
        (home / "pom.xml").write_text(pom)
        copy = ["mvn", "-q", "-B", "-f", str(home / "pom.xml"), "dependency:copy-dependencies"]
        copy += ["-DincludeScope=runtime", f"-DoutputDirectory={home / 'lib'}"]
        subprocess.run(copy, check=True)
        binding = ["java", "-cp", f"{code}/classes:{home}/lib/*", "BindLoopback"]
        subprocess.run([*binding, str(home / "loopback")], check=True)
        (home / ".made").touch()
    return [home / "loopback", code / "classes", home / "lib"]


class Proxies:
    """
    Proxies in cluster mode, in front of the brokers of one name server.

    :param topic: a proxy is ready when the name server has this topic's route.
    :param cluster: `brokerClusterName` of the brokers.
    :param settings: more of `rmq-proxy.json`.
    """

    def __init__(self, rig: Rig, namesrv: str, topic: str, cluster: str, **settings: Any) -> None:
        self._rig, self._namesrv, self._topic, self._cluster = rig, namesrv, topic, cluster
        self._settings = settings

    def start(self, name: str, version: str = OLDEST, *, wait: bool = True) -> Server:
        """Start a proxy; its address is what clients are given as their endpoints."""
        loopback, code, lib = _classes(version)
        home, port = self._rig.directory / name, self._rig.ports(2)
        (home / "conf").mkdir(parents=True, exist_ok=True)
        tls = _rig().part("tls")
        front = {
            "proxyMode": "cluster",
            "rocketMQClusterName": self._cluster,
            "namesrvAddr": self._namesrv,
            "grpcServerPort": port,
            "remotingListenPort": port + 1,
            "localServeAddr": "127.0.0.1",
            "tlsTestModeEnable": False,
            "tlsKeyPath": str(tls / "rocketmq.key"),
            "tlsCertPath": str(tls / "rocketmq.crt"),
            **self._settings,
        }
        conf = home / "conf" / "rmq-proxy.json"
        conf.write_text(json.dumps(front, indent=1))
        command = [
            "java",
            *_rig().JAVA17,
            "-Xms256m",
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Duser.home={home}",
            f"-Dpeerg.bind={port}",
            "-cp",
            f"{loopback}:{code}:{lib}/*",
            "ProxyMain",
            json.dumps({"kind": "proxy"})[1:-1],
            "-",
            "-",
            f"{port},{port + 1}",
            f"{self._namesrv}/{self._topic}",
            "-pc",
            str(conf),
            "-pm",
            "cluster",
        ]
        homes = {"ROCKETMQ_HOME": str(home), "RMQ_PROXY_HOME": str(home)}
        before, self._rig.environment = self._rig.environment, self._rig.environment | homes
        try:
            address = f"127.0.0.1:{port}"
            return self._rig._start(command, address, home, java=True, wait=wait)
        finally:
            self._rig.environment = before


def drive(sdk: str, command: str, *options: Any, timeout: float = 90) -> list[dict[str, Any]]:
    """
    Run a driver of the gRPC rig; return its JSON lines, the last one the summary.

    :raises AssertionError: the driver says that what was asked did not happen.
    """
    done = start_driver(sdk, command, *options)
    out, errors = done.communicate(timeout=timeout)
    if done.returncode != 0:
        raise AssertionError(f"{sdk} {command}: exit {done.returncode}\n{out}\n{errors[-3000:]}")
    return lines_of(out)


def start_driver(sdk: str, command: str, *options: Any) -> subprocess.Popen[str]:
    """Start a driver of the gRPC rig, and return while it runs."""
    words = [str(PEERG), sdk, command, *map(str, options)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines_of(out: str) -> list[dict[str, Any]]:
    """Return the JSON lines of a driver's output."""
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]
