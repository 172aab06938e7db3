"""The official Python SDK of RocketMQ 5, unchanged, against a broker's port for gRPC.

It needs the SDK: `pip install rocketmq-python-client`, in this environment or in that of the rig
`../shared/peerg` (or RMQ_HA_SDK_PYTHON).
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from textwrap import dedent

import pytest

from rmq_ha.testing.real_brokers import RealBroker
from tests.kits.pages import REPO

pytest.importorskip("hpack")
pytest.importorskip("google.protobuf")

SECONDS = 60
SHARED = Path(os.environ.get("RMQ_HA_SHARED", REPO.parent / "shared"))
PROGRAM = """
import sys, time
from rocketmq import ClientConfiguration, Credentials, Message, Producer
from rocketmq import TransactionChecker, TransactionResolution

class Checker(TransactionChecker):
    def check(self, message):
        return TransactionResolution.UNKNOWN

endpoints, plain, paid, later = sys.argv[1:]
producer = Producer(ClientConfiguration(endpoints, Credentials()), (plain, paid, later), Checker())
producer.startup()

def message(topic, body):
    made = Message()
    made.topic, made.body, made.tag, made.keys = topic, body, "t", "k"
    made.add_property("colour", "red")
    return made

producer.send(message(plain, b"plain"))
for body in (b"kept", b"dropped"):
    transaction = producer.begin_transaction()
    producer.send(message(paid, body), transaction)
    transaction.commit() if body == b"kept" else transaction.rollback()
delayed = message(later, b"later")
delayed.delivery_timestamp = int(time.time()) + 600
receipt = producer.send(delayed)
time.sleep(0.2)
producer.recall_message(later, receipt.recall_handle)
producer.shutdown()
"""


def sdk_python() -> str:
    """A Python that has the SDK; empty without one."""
    named = os.environ.get("RMQ_HA_SDK_PYTHON")
    if named:
        return named
    if find_spec("rocketmq") is not None and find_spec("rocketmq.grpc_protocol") is not None:
        return sys.executable  # another package of this name speaks remoting
    rig = SHARED / "peerg" / "peerg"
    if not rig.exists():
        return ""
    code = "import rocketmq.grpc_protocol, sys; print(sys.executable)"
    found = subprocess.run([rig, "python", "-c", code], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else ""


def test_the_python_sdk_sends_ends_transactions_and_recalls(tmp_path: Path) -> None:
    python = sdk_python()
    if not python:
        pytest.skip("the official Python SDK is not installed (pip install rocketmq-python-client)")
    with RealBroker(tmp_path) as broker:
        topics = [broker.new_topic(name) for name in ("plain", "paid", "later")]
        command = [python, "-c", PROGRAM, broker.endpoints, *topics]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        plain, paid, later = map(broker.messages, topics)
    (message,) = plain
    assert (message.body, message.tags, message.keys) == (b"plain", "t", "k")
    assert message.properties["colour"] == "red"
    assert [message.body for message in paid] == [b"kept"]
    assert later == []


@pytest.mark.trials
def test_the_test_of_the_testing_page(tmp_path: Path) -> None:
    """A test of an application with the SDK, by the fixture, as `docs/testing.md` shows it."""
    python = sdk_python()
    if not python:
        pytest.skip("the official Python SDK is not installed (pip install rocketmq-python-client)")
    page = (REPO / "docs" / "testing.md").read_text()
    _, _, rest = page.partition("    # test_sdk.py\n")
    lines = takewhile(lambda line: not line or line.startswith("    "), rest.splitlines())
    (tmp_path / "test_sdk.py").write_text(dedent("\n".join(lines)))
    code = "import rocketmq, os; print(os.path.dirname(os.path.dirname(rocketmq.__file__)))"
    where = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_sdk.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": where.stdout.strip()},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
