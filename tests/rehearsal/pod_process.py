"""
`python pod_process.py PROGRAM ...`: a program as it runs in a pod.

- `POD_NAMES`: a file of lines `NAME ADDRESS`, in place of the cluster's DNS; read at each look-up.
- `POD_IP`: its connections leave from this address.
- `POD_SLOW`: a file with milliseconds by which each write and sync of its disk takes longer.

Everything is changed before Twisted is imported.
"""

from __future__ import annotations

import os
import runpy
import socket
import sys
import time
from pathlib import Path
from typing import Any

_look_up, _connect = socket.getaddrinfo, socket.socket.connect_ex


def names(path: str) -> None:
    """Look names below `.svc` up in a file."""

    def getaddrinfo(host: Any, *rest: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name and name.endswith(".svc"):
            known = dict(line.split() for line in Path(path).read_text().splitlines())
            if name not in known:
                raise socket.gaierror(socket.EAI_NONAME, f"{name} is not known")
            host = known[name]
        return _look_up(host, *rest, **more)

    socket.getaddrinfo = getaddrinfo


def own_address(address: str) -> None:
    """Have connections leave from an address."""

    def connect_ex(self: socket.socket, to: Any) -> int:
        if self.family == socket.AF_INET and self.getsockname()[1] == 0:
            self.bind((address, 0))
        return _connect(self, to)

    socket.socket.connect_ex = connect_ex  # type: ignore[method-assign]


def slow_disk(path: Path) -> None:
    """Take longer for each write and sync, as long as the file says so."""

    def slowed(call: Any) -> Any:
        def run(*arguments: Any) -> Any:
            if path.exists():
                time.sleep(int(path.read_text() or 0) / 1000)
            return call(*arguments)

        return run

    for name in ("pwrite", "fdatasync", "fsync"):
        setattr(os, name, slowed(getattr(os, name)))


if __name__ == "__main__":
    names(os.environ["POD_NAMES"])
    own_address(os.environ["POD_IP"])
    slow_disk(Path(os.environ["POD_SLOW"]))
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
