"""Runs the programs of docs/grpc.md with the official SDKs, against a broker of its own.

    python -m bench.sdk_programs [--rig ../shared/peerg] [--only python java node rust]

Needs the SDKs of the rig (`peerg install`). Each program has to send a message and to receive it.
Exits with 1 when one did not. Rust takes some minutes at the first time, as all of it is compiled.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.client.lookup.administration import put_topic
from rmq_ha.testing.real_brokers import RealBroker

PAGE = Path(__file__).resolve().parents[1] / "docs" / "grpc.md"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rmq-ha-peerg"
LANGUAGES = ("python", "java", "node", "rust")
FENCES = {"node": "javascript"}


def program(language: str, endpoints: str) -> str:
    """Return the program of the page, with the address of the broker."""
    fence = FENCES.get(language, language)
    (text,) = re.findall(rf"^```{fence}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return text.replace("127.0.0.1:8081", endpoints)


def newest(pattern: str) -> Path:
    """Return the newest directory of the rig's cache with such a name."""
    return max(CACHE.glob(pattern), key=lambda path: path.stat().st_mtime)


def command(language: str, text: str, directory: Path, rig: Path) -> list[str]:
    """Write a program, and return the command that runs it."""
    if language == "python":
        (directory / "orders.py").write_text(text)
        return [str(newest("py-*") / "bin" / "python"), "orders.py"]
    if language == "java":
        (directory / "Orders.java").write_text(text)
        jars = str(newest("java-lib-*") / "*")
        return ["java", "-cp", jars, "Orders.java"]
    if language == "node":
        (directory / "orders.js").write_text(text)
        (directory / "node_modules").symlink_to(newest("node-*") / "node_modules")
        return ["node", "orders.js"]
    (directory / "src").mkdir()
    (directory / "src" / "main.rs").write_text(text)
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(rig / "rust" / name, directory)
    target = ["--target-dir", str(CACHE / "rust-target")]
    return ["cargo", "run", "-q", "--release", "--offline", *target]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    rig = Path(__file__).resolve().parents[2] / "shared" / "peerg"
    parser.add_argument("--rig", type=Path, default=rig)
    parser.add_argument("--only", nargs="+", choices=LANGUAGES, default=LANGUAGES)
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="sdks-") as place:
        for language in options.only:
            directory = Path(place) / language
            directory.mkdir()
            with RealBroker(directory / "broker") as broker:
                broker.client.run(put_topic(broker.address, TopicConfig("Orders", 4, 4)))
                text = program(language, broker.endpoints)
                done = subprocess.run(
                    command(language, text, directory, options.rig),
                    cwd=directory,
                    capture_output=True,
                    text=True,
                    timeout=600,
                    check=False,
                )
            said = re.findall(r"^(?:sent|received).*", done.stdout, re.MULTILINE)
            is_good = done.returncode == 0 and "received 4711" in said
            failed += not is_good
            print(f"{language}: {'works' if is_good else 'FAILED'}: {'; '.join(said)}")
            if not is_good:
                print((done.stdout + done.stderr)[-2000:])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
