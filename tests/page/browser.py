"""Debian's Chromium, without its own business on the network."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str | None:
    """Where it is; None: nowhere."""
    return os.environ.get("RMQ_HA_CHROMIUM") or shutil.which("chromium")


def why_not() -> str:
    """Why there is no browser; empty: there is one."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "no playwright: pip install 'rmq-ha[page]'"
    return "" if chromium() else "no chromium: apt-get install chromium (or RMQ_HA_CHROMIUM=path)"


@contextmanager
def browser() -> Iterator[Any]:
    """One, with a profile of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as found:
        started = found.chromium.launch(
            executable_path=chromium(), args=OPTIONS, chromium_sandbox=False
        )
        try:
            yield started
        finally:
            started.close()
