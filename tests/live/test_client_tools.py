"""Commands, examples, the blocking client and asyncio's, against real brokers of ours."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from rmq_ha.base.errors import RemotingError
from rmq_ha.base.host.loop import LoopReactor
from rmq_ha.base.remoting.signing import Credentials
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.aio import connect
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.rules.errors import BrokerRefused, MQClientError, NoRoute
from rmq_ha.client.rules.messages import Message, MessageExt
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.ops.admin import session
from rmq_ha.ops.admin.main import main
from rmq_ha.ops.admin.session import NOT_FOUND

REPO = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
EXAMPLES = {
    "producer": "SEND_OK",
    "push_consumer 10": "greeting hello 9",
    "transactional_producer": "60 COMMIT_MESSAGE\n60 ROLLBACK_MESSAGE",
    "ordered_consumer": "('order-3', ['created', 'paid', 'shipped'])",
    "asyncio_client": "100 of 100 came back",
    "simple_consumer": "job 4",
    "blocking_script": "20 read by forked processes",
}
CONF = """\
brokerClusterName=C
brokerName=broker-a
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
bindAddress=127.0.0.1
mappedFileSizeCommitLog=4194304
maxHashSlotNum=10000
maxIndexNum=40000
enablePropertyFilter=true
waitTimeMillsInSendQueue=10000
"""
ACL = """\
accounts:
- accessKey: useruser
  secretKey: usersecret
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""


def free_base() -> int:
    """Of four neighbouring ports on loopback."""
    for base in range(25330, 25390, 4):
        with ExitStack() as stack:
            try:
                for port in range(base, base + 4):
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return base
    raise RuntimeError("no free ports")


@contextmanager
def broker(directory: Path, more: str = "") -> Iterator[str]:
    """A master with a name server in it; the name server's address."""
    base = free_base()
    text = f"{CONF}listenPort={base + 2}\nembeddedNamesrvPort={base + 1}\nstorePathRootDir=store\n"
    (directory / "b.properties").write_text(text + more)
    output = directory / "output.log"
    command = [str(BIN / "twistd"), "-n", "--pidfile=", "rmqha", "--ready"]
    with output.open("wb") as sink:
        process = subprocess.Popen(
            [*command, "--config", "b.properties"], cwd=directory, stdout=sink, stderr=sink
        )
    try:
        deadline = time.monotonic() + 30
        while "READY {" not in output.read_text():
            assert process.poll() is None, output.read_text()
            assert time.monotonic() < deadline, output.read_text()
            time.sleep(0.05)
        yield f"127.0.0.1:{base + 1}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker(tmp_path_factory.mktemp("broker"), "popEnable=true\n") as address:
        yield address


def react_in_loop(start: Any) -> None:
    """`twisted.internet.task.react`, but the process goes on; ends with SystemExit as well."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        reactor = LoopReactor(loop)
        try:
            await start(reactor).asFuture(loop)
        finally:
            reactor.close()

    asyncio.run(main())


class Admin:
    """Runs the commands of `rmqha-admin` in this process."""

    def __init__(self, namesrv: str, **environ: str) -> None:
        self._environ = {"NAMESRV_ADDR": namesrv, **environ}

    def __call__(self, *arguments: Any, expect: int = 0) -> tuple[str, str]:
        """What it wrote to stdout and stderr; route and index of what is new may take a moment."""
        deadline = time.monotonic() + 30
        code, out, err = self._run(arguments)
        while code == NOT_FOUND != expect and time.monotonic() < deadline:
            time.sleep(0.1)
            code, out, err = self._run(arguments)
        assert code == expect, (arguments, code, out, err)
        return out, err

    def _run(self, arguments: tuple[Any, ...]) -> tuple[Any, str, str]:
        out, err, code = StringIO(), StringIO(), None
        with (
            patch.dict(os.environ, self._environ),
            patch.object(session, "react", react_in_loop),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                main([str(item) for item in arguments], prog_name="rmqha-admin")
            except SystemExit as end:
                code = end.code
        return code, out.getvalue(), err.getvalue()

    def json(self, *arguments: Any, **more: Any) -> list[Any]:
        """The JSON lines of its stdout."""
        return [json.loads(line) for line in self("--json", *arguments, **more)[0].splitlines()]


@pytest.fixture
def admin(namesrv: str) -> Admin:
    return Admin(namesrv)


def test_produce_and_find_again(admin: Admin) -> None:
    """By key, by unique id, by offset id; what is not there is exit code 3."""
    sent = admin.json("produce", "Find", "hello", "--key", "k1", "--tags", "A", "-p", "x=1")[0]
    assert sent["status"] == "SEND_OK"
    by_key = admin.json("message", "show", "--key", "k1", "-t", "Find")
    by_unique = admin.json("message", "show", sent["msg_id"], "-t", "Find")
    assert by_key == by_unique
    assert by_key[0]["body"] == "hello"
    assert by_key[0]["properties"]["x"] == "1"
    by_place = admin.json("message", "show", sent["offset_msg_id"])
    assert by_place[0]["msg_id"] == sent["msg_id"]
    _, error = admin("message", "show", "--key", "other", "-t", "Find", expect=3)
    assert "the key other" in error
    admin("message", "show", sent["offset_msg_id"][:-8] + "00FFFFFF", expect=3)
    _, error = admin("message", "show", sent["msg_id"], expect=2)
    assert "--topic" in error


@pytest.mark.trials
def test_lines_of_stdin_are_messages(admin: Admin, namesrv: str) -> None:
    """Empty ones are left out; equal shards share a queue."""
    done = subprocess.run(
        [str(BIN / "rmqha-admin"), "-n", namesrv, "--json", "produce", "Lines", "--shard", "one"],
        capture_output=True,
        text=True,
        timeout=40,
        check=True,
        input="a\nb\r\n\nc",
    )
    sent = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(sent) == 3
    assert len({item["queue_id"] for item in sent}) == 1
    shown = admin.json("tail", "Lines", "--since", "earliest", "--no-follow")
    assert [item["body"] for item in shown] == ["a", "b", "c"]


@pytest.mark.trials
def test_tail_filters_and_follows(admin: Admin, namesrv: str) -> None:
    """SQL92; from a time on; what comes later is shown."""
    for price in range(4):
        admin("produce", "Tail", f"m{price}", "-p", f"price={price}")
    found = admin.json("tail", "Tail", "--since", "1h", "--sql", "price > 1", "--no-follow")
    assert sorted(item["body"] for item in found) == ["m2", "m3"]
    tail = subprocess.Popen(
        [str(BIN / "rmqha-admin"), "-n", namesrv, "tail", "Tail", "--count", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tail.stderr is not None
    assert "following" in tail.stderr.readline()
    admin("produce", "Tail", "later")
    assert "later" in tail.communicate(timeout=20)[0]
    assert tail.returncode == 0


def test_consume_lag_and_reset(admin: Admin) -> None:
    """A group takes exactly as many as it is told; lag counts the rest; offsets are moved."""
    admin("produce", "Work", "job", "--count", 40, "-q")
    assert len(admin.json("consume", "Work", "-g", "workers", "--count", 10)) == 10
    lag = admin.json("lag", "workers", "-t", "Work")[0]
    assert (lag["lag"], len(lag["rows"])) == (30, 4)
    _, error = admin("lag", "workers", "--fail-above", 29, expect=1)
    assert "30 messages behind" in error
    _, error = admin("reset-offset", "Work", "-g", "workers", "--to", "latest", expect=2)
    assert "--yes" in error
    plan = admin.json("reset-offset", "Work", "-g", "workers", "--to", "latest", "--dry-run")[0]
    assert {row["after"] for row in plan["rows"]} == {10}
    assert admin.json("lag", "workers", "-t", "Work")[0]["lag"] == 30
    admin("reset-offset", "Work", "-g", "workers", "--to", "latest", "--yes")
    assert admin.json("lag", "workers", "-t", "Work")[0]["lag"] == 0
    admin("reset-offset", "Work", "-g", "workers", "--to", "earliest", "--yes")
    assert admin.json("lag", "workers", "-t", "Work")[0]["lag"] == 40
    admin("lag", "nobody", expect=3)


@pytest.mark.trials
def test_consumers_that_run_are_told_of_a_reset(admin: Admin, namesrv: str) -> None:
    """The broker pushes to them; the messages come again; SIGTERM leaves with exit code 0."""
    admin("produce", "Again", "once", "--count", 8, "-q")
    consumer = subprocess.Popen(
        [str(BIN / "rmqha-admin"), "-n", namesrv, "consume", "Again", "-g", "again"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert consumer.stdout is not None
    for _ in range(8):
        assert "once" in consumer.stdout.readline()
    # A group without an offset cannot be set back, and its offsets follow its messages.
    deadline = time.monotonic() + 30
    while admin.json("lag", "again", "-t", "Again")[0]["lag"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    done = admin.json("reset-offset", "Again", "-g", "again", "--to", "earliest", "--yes")[0]
    assert done["done"] == "consumers were told"
    for _ in range(8):
        assert "once" in consumer.stdout.readline()
    consumer.terminate()
    assert consumer.wait(20) == 0
    assert admin.json("lag", "again", "-t", "Again")[0]["lag"] == 0


def test_a_topic_has_a_route_once_its_first_send_is_answered(namesrv: str) -> None:
    """However many come into being one after the other."""
    with BlockingClient(ClientConfig(namesrv_addr=namesrv)) as client:
        for number in range(10):
            topic = f"Made-{number}"
            client.send(Message(topic, b"first"))
            assert client.queues(topic)


def test_routes_and_exit_codes(admin: Admin, namesrv: str) -> None:
    """3: there is none; 4: nobody answers; 2: nobody to ask."""
    admin("produce", "Somewhere", "x")
    row = admin.json("route", "Somewhere")[0]["rows"][0]
    assert (row["broker"], row["perm"]) == ("broker-a", "RW")
    admin("route", "Nowhere", expect=3)
    _, error = admin("--json", "route", "Somewhere", "-n", "127.0.0.1:1", expect=4)
    assert "no name server answers" in json.loads(error)["error"]
    assert admin.json("route", "Somewhere", "-n", f"127.0.0.1:1;{namesrv}")
    _, error = Admin("")("route", "Somewhere", expect=2)
    assert "--namesrv" in error


def test_daily_commands(admin: Admin) -> None:
    """Each as it is typed: brokers, settings, topics, groups, clients, dead letters, the pair."""
    (row,) = admin.json("broker", "list")[0]["rows"]
    assert (row["broker"], row["id"], row["role"]) == ("broker-a", 0, "ASYNC_MASTER")
    assert admin.json("broker", "status", row["address"])[0]["brokerVersionDesc"] == "V4_9_7"
    key = "fileReservedTime"
    assert admin.json("broker", "config", "get", "broker-a", key)[0][key] == "72"
    _, error = admin("broker", "config", "set", "broker-a", f"{key}=48", expect=2)
    assert "--yes" in error
    assert admin.json("broker", "config", "set", "broker-a", f"{key}=48", "-y")[-1]["done"]
    assert admin.json("broker", "config", "get", row["address"], key)[0][key] == "48"
    admin("broker", "config", "get", "broker-a", "nothing", expect=3)
    admin("topic", "create", "Daily", "--queues", 2)
    admin("topic", "create", "Daily", expect=1)
    admin("topic", "update", "Daily", "--write-queues", 3, "--read-queues", 3, "--yes")
    admin("topic", "update", "Daily9", "--perm", "R", "--yes", expect=3)
    admin("produce", "Daily", "x", "--count", 4, "-q")
    assert "Daily" in {row["topic"] for row in admin.json("topic", "list", "C")[0]["rows"]}
    assert admin.json("topic", "status", "Daily")[0]["messages"] == 4
    admin("consume", "Daily", "-g", "daily", "--count", 1)
    assert "daily" in {row["group"] for row in admin.json("group", "list")[0]["rows"]}
    assert admin.json("group", "show", "daily")[0]["members"] == []
    assert "daily" in admin("group", "show", "daily")[0]
    assert "clients" in admin("connections", "-g", "daily")[0]
    admin("group", "create", "daily", expect=1)
    admin("group", "update", "daily", "--retries", 5, "--no-broadcast", "--yes")
    settings = admin.json("group", "show", "daily")[0]["settings"][row["address"]]
    assert (settings["retryMaxTimes"], settings["consumeBroadcastEnable"]) == (5, False)
    admin("group", "delete", "daily", "--keep-offsets", "--dry-run")
    admin("group", "delete", "daily", "--yes")
    admin("group", "show", "daily", expect=3)
    assert admin.json("dlq", "list", "--fail-above", 0)[0]["messages"] == 0
    admin("dlq", "show", "daily", expect=3)
    admin("dlq", "resend", "daily", "--yes", expect=3)
    assert admin.json("ha", "status")[0]["problems"] is None
    admin("topic", "delete", "Daily", "--yes")
    admin("topic", "status", "Daily", expect=3)


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(name, marks=() if name == "producer" else pytest.mark.trials)
        for name in EXAMPLES
    ],
)
def test_examples(namesrv: str, example: str) -> None:
    """Each does what it says, in less than 40 lines."""
    name, *arguments = example.split()
    path = REPO / "examples" / f"{name}.py"
    assert len(path.read_text().splitlines()) < 40
    done = subprocess.run(
        [sys.executable, str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "NAMESRV_ADDR": namesrv},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert EXAMPLES[example] in done.stdout
    assert "Traceback" not in done.stderr, done.stderr


def until_routed(client: BlockingClient, topic: str) -> None:
    """The broker tells the name server of a topic that a send created a moment later."""
    deadline = time.monotonic() + 30
    while True:
        try:
            client.route(topic)
            return
        except NoRoute:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_the_blocking_client_sends_and_reads(namesrv: str) -> None:
    """Batches, one-way sends, queues chosen by the caller, offsets, times."""
    with BlockingClient(namesrv) as client:
        first = client.send(Message("Plain", b"x" * 5000))
        until_routed(client, "Plain")
        queue = first.message_queue
        client.send(Message("Plain", b"two", "TagB"), queue=queue)
        batch = client.send_batch([Message("Plain", b"%d" % i) for i in range(3)], queue=queue)
        assert len(batch) == 1
        client.send_oneway(Message("Plain", b"last"), queue=queue)
        deadline = time.monotonic() + 30
        while client.max_offset(queue) < first.queue_offset + 6 and time.monotonic() < deadline:
            time.sleep(0.05)
        bodies = [item.body for item in client.messages(queue, 0, 6)]
        assert bodies == [b"x" * 5000, b"two", b"0", b"1", b"2", b"last"]
        assert [m.body for m in client.messages(queue, 1, 3)] == [b"two", b"0"]
        assert [m.body for m in client.messages(queue, 0, 6, "TagB")] == [b"two"]
        with pytest.raises(MQClientError, match="ends at 6 where it was read, 7 was wanted"):
            list(client.messages(queue, 0, 7))
        assert client.min_offset(queue) == 0
        assert client.earliest_msg_store_time(queue) > 0
        assert client.search_offset(queue, 1) == 0
        client.commit("plain-group", queue, 4)
        assert client.committed("plain-group", queue) == 4
        assert client.consume_stats("plain-group", "Plain").lag == 2
        assert client.view_message(first.offset_msg_id).body == b"x" * 5000
        with pytest.raises(MQClientError, match="route"):
            client.pull(MessageQueue("Nowhere", queue.broker_name, queue.queue_id), 0)


def test_the_blocking_client_keeps_away_from_twisted(namesrv: str) -> None:
    """Neither a reactor nor anything else of it is imported, and asyncio is not either."""
    code = (
        "import sys; from rmq_ha.client.blocking import BlockingClient;"
        "from rmq_ha.client.rules.messages import Message;"
        f"BlockingClient({namesrv!r}).send(Message('Plain', b'x'));"
        "unwanted = {'twisted', 'zope', 'OpenSSL', 'asyncio'};"
        "print(sorted(unwanted.intersection(name.split('.')[0] for name in sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == "[]"


def in_child(work: Any) -> str:
    """What a forked process says."""
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = str(work())
        except BaseException as error:
            said = repr(error)
        os.write(sending, said.encode())
        os._exit(0)
    os.close(sending)
    os.waitpid(pid, 0)
    with os.fdopen(receiving) as pipe:
        return pipe.read()


def test_a_forked_process_makes_its_own_blocking_connections(namesrv: str) -> None:
    """Parent and child go on side by side; ids stay unique."""
    with BlockingClient(namesrv) as client:
        mine = client.send(Message("Forked", b"parent"))
        theirs = in_child(lambda: client.send(Message("Forked", b"child")).msg_id)
        assert len(theirs) == 32
        assert theirs[:20] != mine.msg_id[:20]
        assert client.send(Message("Forked", b"parent")).send_status.name == "SEND_OK"


def test_a_reactor_client_refuses_in_a_forked_process(namesrv: str) -> None:
    """The child hears why, and its end leaves the parent's connections and group alone."""

    async def main() -> None:
        async with connect(namesrv) as client:
            producer = await client.producer()
            await producer.send(Message("Forked", b"before"))

            def send() -> BaseException | None:
                later = producer.deferred.send(Message("Forked", b"child"))
                failed: list[Any] = []
                later.addBoth(failed.append)
                command = RemotingCommand(1)
                client.instance.invoke("127.0.0.1:1", command, 1).addErrback(failed.append)
                return failed[-1].value  # type: ignore[no-any-return]

            said = in_child(send)
            assert said.startswith(f"this client belongs to the process {os.getpid()}"), said
            result = await producer.send(Message("Forked", b"after"))
            assert result.send_status.name == "SEND_OK"

    asyncio.run(main())


def test_asyncio(namesrv: str) -> None:
    """A listener may await; tasks and loop survive the client; nothing stays open."""

    async def main() -> None:
        gc.collect()
        descriptors = len(os.listdir("/proc/self/fd"))
        got: asyncio.Queue[bytes] = asyncio.Queue()

        async def listen(messages: Sequence[MessageExt], context: Any) -> None:
            await asyncio.sleep(0.001)
            for message in messages:
                got.put_nowait(message.body)

        async with connect(ClientConfig(namesrv_addr=namesrv)) as client:
            producer = await client.producer()
            await asyncio.gather(*[producer.send(Message("Aio", b"%d" % n)) for n in range(50)])
            consumer = client.push_consumer("aio")
            consumer.subscribe("Aio")
            consumer.register_message_listener(listen)
            await consumer.start()
            async with asyncio.timeout(20):
                assert {await got.get() for _ in range(50)} == {b"%d" % n for n in range(50)}
            cancelled = producer.request(Message("Aio", b"nobody replies"), 5000)
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        await asyncio.sleep(0)
        assert len(os.listdir("/proc/self/fd")) <= descriptors

    asyncio.run(main())


def test_pulling_with_asyncio(namesrv: str) -> None:
    """A lite pull consumer polls assigned queues; a pull consumer goes anywhere."""

    async def main() -> None:
        async with connect(namesrv) as client:
            producer = await client.producer()
            first = await producer.send(Message("AioPull", b"0"))
            queue = first.message_queue
            for number in range(1, 5):
                await producer.send(Message("AioPull", b"%d" % number), queue=queue)
            pull = client.pull_consumer("aio-pull")
            await pull.start()
            async with asyncio.timeout(20):
                while await pull.max_offset(queue) < 5:
                    await asyncio.sleep(0.05)
            found = await pull.pull_block_if_not_found(queue, "*", 2, 32)
            assert [message.body for message in found.msg_found_list] == [b"2", b"3", b"4"]
            lite = client.lite_pull_consumer("aio-lite")
            lite.assign([queue])
            await lite.start()
            await lite.seek(queue, 3)
            bodies: list[bytes] = []
            async with asyncio.timeout(20):
                while len(bodies) < 2:
                    bodies += [message.body for message in await lite.poll(1000)]
            assert bodies == [b"3", b"4"]
            await lite.commit_sync()
            assert await lite.committed(queue) == 5

    asyncio.run(main())


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A broker with TLS and access control; its root certificate."""
    directory = tmp_path_factory.mktemp("guarded")
    authority = trustme.CA()
    root = directory / "root.pem"
    authority.cert_pem.write_to_path(str(root))
    issued = authority.issue_cert("127.0.0.1")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    (directory / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    (directory / "cert.pem").write_bytes(b"".join(p.bytes() for p in issued.cert_chain_pems))
    (directory / "plain_acl.yml").write_text(ACL)
    (directory / "plain_acl.yml").chmod(0o600)
    more = (
        f"aclEnable=true\naclDirectory={directory}\ntls.server.mode=enforcing\n"
        f"tls.test.mode.enable=false\ntls.server.keyPath={directory}/key.pem\n"
        f"tls.server.certPath={directory}/cert.pem\ntls.client.authServer=true\n"
        f"tls.client.trustCertPath={root}\n"
    )
    with broker(directory, more) as address:
        yield address, root


def test_tls_and_acl(guarded: tuple[str, Path], tmp_path: Path) -> None:
    """Commands and blocking client sign and verify; strangers on either side are told apart."""
    namesrv, root = guarded
    account = {"RMQHA_ACCESS_KEY": "useruser", "RMQHA_SECRET_KEY": "usersecret"}
    admin = Admin(namesrv, **account)
    sent = admin.json("produce", "Safe", "secret", "--tls-ca", root)[0]
    shown = admin.json("--tls-ca", root, "message", "show", sent["msg_id"], "-t", "Safe")
    assert shown[0]["body"] == "secret"
    _, error = admin("produce", "Safe", "x", "--tls")
    assert "nobody checks" in error
    stranger = Admin(namesrv, **{**account, "RMQHA_SECRET_KEY": "wrongwrong"})
    stranger("produce", "Safe", "x", "--tls-ca", root, expect=1)
    admin("route", "Safe", "--timeout", 2, expect=4)  # no TLS
    keys = {
        "tls.test.mode.enable": "false",
        "tls.client.trustCertPath": str(root),
        "tls.client.authServer": "true",
    }
    settings = ClientConfig(
        namesrv_addr=namesrv,
        use_tls=True,
        tls=keys,
        credentials=Credentials("useruser", "usersecret"),
    )
    with BlockingClient(settings) as client:
        result = client.send(Message("Safe", b"blocking"))
        queue = result.message_queue
        found = list(
            client.messages(queue, result.queue_offset, result.queue_offset + 1, group="g")
        )
        assert found[0].body == b"blocking"
        assert len(in_child(lambda: client.send(Message("Safe", b"child")).msg_id)) == 32
        client.send(Message("Safe", b"parent"))
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    wrong = {**keys, "tls.client.trustCertPath": str(other)}
    with (
        BlockingClient(ClientConfig(namesrv_addr=namesrv, use_tls=True, tls=wrong)) as client,
        pytest.raises((MQClientError, RemotingError), match="certificate is refused"),
    ):
        client.route("Safe")
    unsigned = ClientConfig(namesrv_addr=namesrv, use_tls=True, tls=keys)
    with BlockingClient(unsigned) as client, pytest.raises((BrokerRefused, MQClientError)):
        client.send(Message("Safe", b"x"))
