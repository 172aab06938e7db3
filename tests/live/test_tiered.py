"""Tiered storage with real processes, and with moto's server in place of S3."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.rules.messages import Message
from rmq_ha.server.tiered.objects import TierError
from rmq_ha.server.tiered.s3 import S3Objects, s3_objects
from tests.live.live_ports import free_ports
from tests.live.lone_broker import LoneBroker

moto_server = pytest.importorskip("moto.server", reason="moto is not installed")

BASES = range(26200, 26300, 4)
BUCKET = "messages"
COUNT, BODY = 900, 1500
FILE = 1 << 18


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    (port,) = free_ports(1, range(26100, 26200, 4))
    names = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1"}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    server = moto_server.ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    url = f"http://127.0.0.1:{port}"
    request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
    urllib.request.urlopen(request, timeout=10).close()
    yield url
    server.stop()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


@pytest.fixture
def objects(endpoint: str) -> S3Objects:
    return s3_objects(BUCKET, endpoint, "us-east-1")


def test_objects_are_written_read_listed_and_deleted(objects: S3Objects) -> None:
    objects.put("a/one", b"0123456789")
    assert objects.get("a/one") == b"0123456789"
    assert objects.get("a/one", 3, 4) == b"3456"
    assert objects.get("a/one", 8, 4) == b"89"
    objects.put("b", b"")
    assert objects.keys("a/") == ["a/one"]
    objects.delete("a/one")
    objects.delete("a/one")
    assert objects.keys("a/") == []


def test_an_object_of_several_parts_is_there_when_it_is_finished(objects: S3Objects) -> None:
    parts = [os.urandom(5 << 20), b"the rest"]
    upload = objects.begin("parts")
    tags = [objects.put_part("parts", upload, at, data) for at, data in enumerate(parts, 1)]
    assert objects.keys("parts") == []
    objects.finish("parts", upload, tags)
    assert objects.get("parts") == b"".join(parts)
    abandoned = objects.begin("other")
    objects.abandon("other", abandoned)
    with pytest.raises(TierError, match="cannot write other in bucket messages"):
        objects.put_part("other", abandoned, 1, b"x")


def test_errors_name_object_and_bucket(objects: S3Objects, endpoint: str) -> None:
    with pytest.raises(TierError, match="cannot read nothing in bucket messages"):
        objects.get("nothing")
    with pytest.raises(TierError, match="in bucket wrong"):
        s3_objects("wrong", endpoint, "us-east-1").put("x", b"")
    with pytest.raises(ConfigurationError, match="boto3 does not accept"):
        s3_objects(BUCKET, "http://", "us-east-1")


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def bodies_of(client: BlockingClient, topic: str) -> list[int]:
    found = []
    for queue in client.queues(topic):
        begin, end = client.min_offset(queue), client.max_offset(queue)
        found += [int(message.body[:8]) for message in client.messages(queue, begin, end)]
    return sorted(found)


def test_messages_outlive_their_local_files_and_a_slave_begins_with_the_tier(
    endpoint: str, tmp_path: Path
) -> None:
    settings = (
        f"mappedFileSizeCommitLog={FILE}\nmessageStorePlugIn=tiered\nflushDiskType=SYNC_FLUSH\n"
        f"tiered.bucket={BUCKET}\ntiered.endpoint={endpoint}\ntiered.region=us-east-1\n"
    )
    directory = tmp_path / "master"
    directory.mkdir()
    broker = LoneBroker(directory, BASES, settings + "brokerRole=ASYNC_MASTER\n")
    try:
        with BlockingClient(f"127.0.0.1:{broker.namesrv}") as client:
            for first in range(0, COUNT, 100):
                numbers = range(first, first + 100)
                client.send_batch([Message("TBW102", b"%08d" % n + bytes(BODY)) for n in numbers])
            log = broker.store / "commitlog"
            sealed = sorted(log.iterdir())[:4]
            until(lambda: broker.metric("rmqha_tier_size_bytes")[""] >= len(sealed) * FILE)
        # The broker's cleaner comes after a minute only, so its work is done here.
        broker.end()
        for path in sealed[:-1]:
            path.unlink()
        broker = LoneBroker(directory, BASES, settings + "brokerRole=ASYNC_MASTER\n")
        with BlockingClient(f"127.0.0.1:{broker.namesrv}") as client:
            until(lambda: broker.metric("rmqha_tier_size_bytes")[""] > 0)
            assert bodies_of(client, "TBW102") == list(range(COUNT))
            # A scrape may be a second old.
            until(lambda: broker.metric("rmqha_tier_read_bytes_total")[""] >= 3 * FILE)
            assert broker.metric("rmqha_tier_failing")[""] == 0
            ends = {queue.queue_id: client.max_offset(queue) for queue in client.queues("TBW102")}

        slave = tmp_path / "slave"
        slave.mkdir()
        (base,) = free_ports(1, range(26300, 26400, 4))
        (slave / "p").write_text(
            "bindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\nbrokerName=broker-a\n"
            f"storePathRootDir=store\nbrokerRole=SLAVE\nbrokerId=1\nlistenPort={base}\n"
            f"haMasterAddress=127.0.0.1:{broker.port + 1}\nmaxHashSlotNum=1000\n"
            f"maxIndexNum=4000\n{settings}"
        )
        admin = Path(sys.executable).with_name("rmqha-admin")
        done = subprocess.run(
            [admin, "store", "fetch", "-c", "p"], cwd=slave, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        objects = s3_objects(BUCKET, endpoint, "us-east-1")
        in_tier = [key[-20:] for key in objects.keys("DefaultCluster/broker-a/log/")]
        fetched = sorted(path.name for path in (slave / "store" / "commitlog").iterdir())
        # An empty file follows, in which the log goes on.
        assert fetched == [*in_tier, f"{int(in_tier[-1]) + FILE:020d}"]
        twistd = Path(sys.executable).with_name("twistd")
        follower = subprocess.Popen(
            [twistd, "-n", "--pidfile=", "rmqha", "--config", "p"],
            cwd=slave,
            stdout=(slave / "out").open("wb"),
            stderr=subprocess.STDOUT,
        )
        try:
            with BlockingClient("127.0.0.1:1") as client:

                def copied() -> bool:
                    for queue_id, end in ends.items():
                        fields = {"topic": "TBW102", "queueId": str(queue_id)}
                        ask = RemotingCommand(RequestCode.GET_MAX_OFFSET, ext=fields)
                        try:
                            answer = client.call(f"127.0.0.1:{base}", ask)
                        except Exception:
                            return False
                        if (answer.ext or {}).get("offset") != str(end):
                            return False
                    return True

                until(copied)
        finally:
            follower.kill()
            follower.wait()
        for name in in_tier:
            content = (slave / "store" / "commitlog" / name).read_bytes()
            assert content == objects.get(f"DefaultCluster/broker-a/log/{name}")
    finally:
        broker.end()
