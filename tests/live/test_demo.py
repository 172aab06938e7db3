"""The README's first command: real processes, kill -9, everything acknowledged is on the slave."""

import subprocess
import sys
from pathlib import Path

import pytest

from rmq_ha.ops.app.demo_sdk import missing_sdk


def test_demo() -> None:
    """`rmqha-demo` ends with the verdict and exit code 0."""
    command = [str(Path(sys.executable).with_name("rmqha-demo")), "--messages", "2000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert "2,000 of 2,000 acknowledged with SEND_OK" in text
    assert "read back from the slave" in text
    assert "nothing that was acknowledged is lost" in text


@pytest.mark.trials
def test_demo_of_a_group() -> None:
    """`rmqha-demo --dledger` ends with the verdict and exit code 0, and says who was elected."""
    command = [str(Path(sys.executable).with_name("rmqha-demo")), "--dledger", "--messages", "2000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert "2,000 of 2,000 acknowledged with SEND_OK" in text
    assert "was elected and takes sends" in text
    assert "read back from the new leader" in text
    assert "nothing that was acknowledged is lost" in text


@pytest.mark.trials
def test_demo_of_a_fail_over() -> None:
    """`rmqha-demo --failover` goes on sending through the kill, and says how long it took."""
    command = [str(Path(sys.executable).with_name("rmqha-demo")), "--failover"]
    command += ["--messages", "2000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert "was elected; for" in text
    assert "read back from the new master" in text
    assert "nothing that was acknowledged is lost" in text


@pytest.mark.trials
@pytest.mark.skipif(bool(missing_sdk()), reason=missing_sdk())
def test_demo_of_the_sdk() -> None:
    """`rmqha-demo --sdk`: the official SDK sends through the kill, and reads all of it."""
    command = [str(Path(sys.executable).with_name("rmqha-demo")), "--sdk", "--messages", "400"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert "was elected; for" in text
    assert "the SDK received" in text
    assert "nothing that was acknowledged is lost" in text
