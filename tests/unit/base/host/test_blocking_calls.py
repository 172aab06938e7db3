"""BlockingCalls against a socket that behaves as it likes."""

import os
import socket
import ssl
import struct
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from rmq_ha.base.errors import (
    ConfigurationError,
    ProtocolViolation,
    RemotingConnectError,
    RemotingTimeout,
)
from rmq_ha.base.host.blocking import BlockingCalls
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame

Behaviour = Callable[[socket.socket, RemotingCommand], None]


def echo(peer: socket.socket, request: RemotingCommand) -> None:
    if not request.is_oneway:
        peer.sendall(encode_frame(request.response(0, body=request.body)))


@contextmanager
def server(
    behaviour: Behaviour, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, list[int]]]:
    """Its address, and the numbers of requests that its connections brought."""
    listener = socket.create_server(("127.0.0.1", 0))
    counts: list[int] = []

    def serve(peer: socket.socket, number: int) -> None:
        reader = FrameReader()
        with peer:
            if tls is not None:
                try:
                    peer = tls.wrap_socket(peer, server_side=True)
                except OSError:
                    return
            while True:
                try:
                    data = peer.recv(65536)
                    if not data:
                        return
                    for frame in reader.receive_data(data):
                        counts[number] += 1
                        behaviour(peer, decode_frame(*frame))
                except (OSError, ProtocolViolation):
                    return

    def accept() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            counts.append(0)
            threading.Thread(target=serve, args=(peer, len(counts) - 1), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", counts
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_calls_share_a_connection() -> None:
    """One after the other, and one-way ones between them."""
    with server(echo) as (address, counts):
        calls = BlockingCalls()
        for number in range(3):
            body = b"%d" % number
            assert calls.invoke(address, RemotingCommand(1, body=body), 5000).body == body
            calls.oneway(address, RemotingCommand(2))
        assert calls.invoke(address, RemotingCommand(1), 5000).code == 0
        assert counts == [7]
        calls.close()
        calls.close()
        with pytest.raises(RemotingConnectError, match="closed"):
            calls.invoke(address, RemotingCommand(1), 5000)


def test_a_connection_that_was_closed_meanwhile_is_opened_again() -> None:
    """The request goes out once only."""

    closed = threading.Semaphore(0)

    def once(peer: socket.socket, request: RemotingCommand) -> None:
        echo(peer, request)
        peer.shutdown(socket.SHUT_RDWR)
        closed.release()

    with server(once) as (address, counts), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        calls = BlockingCalls()
        for _ in range(3):
            calls.invoke(address, RemotingCommand(1), 5000)
            assert closed.acquire(timeout=10)
        assert counts == [1, 1, 1]
        calls.close()
    ours = f"raddr=('127.0.0.1', {address.rpartition(':')[2]})"
    assert [one for one in warned if ours in str(one.message)] == []  # none was only forgotten


def test_pushes_and_late_answers_are_passed_over() -> None:
    """What is no answer to this request is not taken for one."""

    def chatty(peer: socket.socket, request: RemotingCommand) -> None:
        peer.sendall(encode_frame(RemotingCommand(40, opaque=request.opaque)))
        late = request.response(9)
        late.opaque = request.opaque - 1
        peer.sendall(encode_frame(late))
        echo(peer, request)

    with server(chatty) as (address, _):
        calls = BlockingCalls()
        for _ in range(3):
            assert calls.invoke(address, RemotingCommand(1), 5000).code == 0
        calls.close()


def test_each_request_has_a_number_of_its_own() -> None:
    """Else the answer to another one might be taken for its."""
    numbers: list[int] = []

    def note(peer: socket.socket, request: RemotingCommand) -> None:
        numbers.append(request.opaque)
        echo(peer, request)

    with server(note) as (address, counts), closing(BlockingCalls()) as calls:
        for _ in range(5):
            calls.invoke(address, RemotingCommand(1), 5000)
        assert counts == [5]
    assert len(set(numbers)) == 5
    assert min(numbers) > 0


def test_small_requests_wait_for_no_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[socket.socket] = []
    connect = socket.create_connection

    def connected(address: tuple[str, int], timeout: float) -> socket.socket:
        opened.append(connect(address, timeout))
        return opened[-1]

    monkeypatch.setattr(socket, "create_connection", connected)
    with server(echo) as (address, _), closing(BlockingCalls()) as calls:
        calls.invoke(address, RemotingCommand(1), 5000)
        (made,) = opened
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_silence_and_nonsense_end_the_connection() -> None:
    """Each with its own error; nobody to connect to has one too."""
    with server(lambda peer, request: None) as (address, _):
        calls = BlockingCalls()
        with pytest.raises(RemotingTimeout, match="50 ms"):
            calls.invoke(address, RemotingCommand(1), 50)
        calls.close()
    with server(lambda peer, request: peer.sendall(b"HTTP/1.1 400\r\n\r\n")) as (address, counts):
        calls = BlockingCalls()
        for connections in (1, 2):  # nobody knows what else comes on the one before
            with pytest.raises(ProtocolViolation):
                calls.invoke(address, RemotingCommand(1), 5000)
            assert len(counts) == connections
        calls.close()
    with server(lambda peer, request: peer.close()) as (address, _):
        calls = BlockingCalls()
        with pytest.raises(RemotingConnectError):
            calls.invoke(address, RemotingCommand(1), 5000)
        calls.close()
    calls = BlockingCalls()
    with pytest.raises(RemotingConnectError, match="refused"):
        calls.invoke("127.0.0.1:1", RemotingCommand(1), 5000)


@pytest.mark.parametrize("address", ["nonsense", "h:x", "127.0.0.1:99999999", "a" * 70 + ":1"])
def test_an_address_that_is_none_is_no_connection(address: str) -> None:
    """A name server may tell anything."""
    with closing(BlockingCalls()) as calls, pytest.raises(RemotingConnectError, match=address):
        calls.invoke(address, RemotingCommand(1), 1_000)


def test_threads_wait_for_each_other() -> None:
    """Every one gets its own answer."""
    with server(echo) as (address, counts):
        calls = BlockingCalls()
        wrong: list[bytes] = []

        def work(name: int) -> None:
            for number in range(50):
                body = b"%d-%d" % (name, number)
                if calls.invoke(address, RemotingCommand(1, body=body), 10000).body != body:
                    wrong.append(body)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (wrong, counts) == ([], [200])
        calls.close()


def test_a_fork_has_connections_of_its_own() -> None:
    """The parent's stays open and in step, also when the child ends."""
    with server(echo) as (address, counts):
        calls = BlockingCalls()
        calls.invoke(address, RemotingCommand(1), 5000)
        pid = os.fork()
        if pid == 0:
            try:
                answer = calls.invoke(address, RemotingCommand(1, body=b"child"), 5000)
                calls.close()
                os._exit(0 if answer.body == b"child" else 1)
            except BaseException:
                os._exit(2)
        assert os.waitpid(pid, 0)[1] == 0
        assert calls.invoke(address, RemotingCommand(1, body=b"p"), 5000).body == b"p"
        assert counts == [2, 1]
        calls.close()


def test_a_fork_keeps_no_connection_of_its_parent() -> None:
    """Not even one that another thread of the parent uses: nobody would hear of its end."""
    asked, goes_on = threading.Semaphore(0), threading.Event()

    def held(peer: socket.socket, request: RemotingCommand) -> None:
        if request.body == b"parent":
            asked.release()
            goes_on.wait(30)
        echo(peer, request)

    def descriptors() -> set[str]:
        names = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
        return {os.readlink(name) for name in names if os.path.islink(name)}

    with server(held) as (address, counts), closing(BlockingCalls()) as calls:
        answers: list[RemotingCommand] = []

        def work() -> None:
            answers.append(calls.invoke(address, RemotingCommand(1, body=b"parent"), 30_000))

        thread = threading.Thread(target=work)
        thread.start()
        assert asked.acquire(timeout=10)
        opened = calls._mine.connections[address]._socket
        assert opened is not None
        of_parent = os.readlink(f"/proc/self/fd/{opened.fileno()}")
        pid = os.fork()
        if pid == 0:
            try:
                calls.invoke(address, RemotingCommand(1), 5000)
                os._exit(1 if of_parent in descriptors() else 0)
            except BaseException:
                os._exit(2)
        assert os.waitpid(pid, 0)[1] == 0
        goes_on.set()
        thread.join()
        assert [answer.body for answer in answers] == [b"parent"]
        assert counts == [1, 1]


def test_tls_keys_that_do_not_fit() -> None:
    """They are told when the client is made."""
    with pytest.raises(ConfigurationError, match="trustCertPath"):
        BlockingCalls(
            use_tls=True,
            tls={"tls.test.mode.enable": "false", "tls.client.authServer": "true"},
        )
    with pytest.raises(ConfigurationError, match="TLS files"):
        BlockingCalls(
            use_tls=True,
            tls={"tls.test.mode.enable": "false", "tls.client.trustCertPath": "/nowhere.pem"},
        )


def test_a_push_that_comes_in_pieces_between_two_calls() -> None:
    """It is passed over, and the connection stays in step."""
    sent = threading.Semaphore(0)
    rest: list[bytes] = []

    def pushing(peer: socket.socket, request: RemotingCommand) -> None:
        peer.sendall(b"".join(rest))
        echo(peer, request)
        push = encode_frame(RemotingCommand(40, body=b"x" * 100))
        rest[:] = [push[50:]]
        time.sleep(0.01)  # so that it comes apart from the answer
        peer.sendall(push[:50])
        sent.release()

    with server(pushing) as (address, counts), closing(BlockingCalls()) as calls:
        for number in range(3):
            body = b"%d" % number
            assert calls.invoke(address, RemotingCommand(1, body=body), 5000).body == body
            assert sent.acquire(timeout=10)
        assert counts == [3]


def test_a_peer_that_says_other_things_is_not_waited_for_longer() -> None:
    """The time is that for the answer, whatever comes in between."""

    def slow(peer: socket.socket, request: RemotingCommand) -> None:
        for _ in range(20):
            peer.sendall(encode_frame(RemotingCommand(40)))
            time.sleep(0.01)
        echo(peer, request)

    with (
        server(slow) as (address, _),
        closing(BlockingCalls()) as calls,
        pytest.raises(RemotingTimeout),
    ):
        calls.invoke(address, RemotingCommand(1), 50)


def test_a_peer_that_reads_nothing() -> None:
    """Nobody waits for ever to tell it something."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        closing(BlockingCalls(connect_timeout_ms=50)) as calls,
    ):
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(RemotingTimeout, match="takes no data"):
            calls.oneway(address, RemotingCommand(1, body=bytes(15 << 20)))


@pytest.mark.parametrize("is_oneway", [True, False])
def test_a_frame_that_went_out_in_part_ends_the_connection(is_oneway: bool) -> None:
    """What comes after it would be taken for its rest."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        closing(BlockingCalls(connect_timeout_ms=300)) as calls,
    ):
        listener.settimeout(10)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        calls.oneway(address, RemotingCommand(1))
        big = RemotingCommand(2, body=bytes(15 << 20))
        with listener.accept()[0]:
            with pytest.raises(RemotingTimeout):
                calls.oneway(address, big) if is_oneway else calls.invoke(address, big, 300)
            calls.oneway(address, RemotingCommand(3))
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(10)
            (frame,) = FrameReader().receive_data(peer.recv(4096))
            assert decode_frame(*frame).code == 3


@pytest.mark.parametrize("is_oneway", [True, False])
def test_so_does_one_that_the_system_took_in_part(
    monkeypatch: pytest.MonkeyPatch, is_oneway: bool
) -> None:
    """As above, and the peer is still there."""
    send = socket.socket.sendall

    def send_half(to: socket.socket, data: bytes) -> None:
        send(to, data[: len(data) // 2])
        raise OSError(105, "No buffer space available")

    with server(echo) as (address, counts), closing(BlockingCalls()) as calls:
        calls.invoke(address, RemotingCommand(1), 5000)
        with monkeypatch.context() as patch:
            patch.setattr(socket.socket, "sendall", send_half)
            tell = calls.oneway if is_oneway else partial(calls.invoke, timeout_ms=5000)
            with pytest.raises(RemotingConnectError, match="No buffer space"):
                tell(address, RemotingCommand(2))
        assert calls.invoke(address, RemotingCommand(3, body=b"3"), 5000).body == b"3"
        assert counts == [1, 1]


def test_a_big_request_after_a_push_waits_for_the_peer_to_read() -> None:
    """However the connection was looked at before."""
    size, pushed = 8 << 20, threading.Semaphore(0)

    def pushing(peer: socket.socket, request: RemotingCommand) -> None:
        peer.sendall(encode_frame(request.response(0, body=b"%d" % len(request.body or b""))))
        time.sleep(0.01)  # so that it comes apart from the answer
        peer.sendall(encode_frame(RemotingCommand(40)))
        pushed.release()

    with server(pushing) as (address, counts), closing(BlockingCalls()) as calls:
        calls.invoke(address, RemotingCommand(1), 5000)
        for _ in range(2):
            assert pushed.acquire(timeout=10)
            answer = calls.invoke(address, RemotingCommand(1, body=bytes(size)), 20_000)
            assert answer.body == b"%d" % size
        assert counts == [3]


def test_closing_ends_the_calls_that_wait() -> None:
    """Those of other threads: they do not wait for the end of their time."""
    asked, ended = threading.Semaphore(0), list[str]()
    with server(lambda peer, request: asked.release()) as (address, _):
        calls = BlockingCalls()

        def work() -> None:
            with pytest.raises(RemotingConnectError):
                calls.invoke(address, RemotingCommand(1), 10_000)
            ended.append(address)

        thread = threading.Thread(target=work)
        thread.start()
        assert asked.acquire(timeout=10)
        calls.close()
        thread.join()
    assert ended == [address]


def test_a_connection_that_the_peer_has_reset_is_closed_all_the_same() -> None:
    calls = BlockingCalls()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        calls.oneway(f"127.0.0.1:{listener.getsockname()[1]}", RemotingCommand(1))
        peer, _ = listener.accept()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        calls.close()


def test_a_client_that_is_closed_leaves_no_connection() -> None:
    calls = BlockingCalls()
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        peers = []
        for listener in (one, two):
            calls.oneway(f"127.0.0.1:{listener.getsockname()[1]}", RemotingCommand(1))
            peers.append(listener.accept()[0])
        calls.close()
        for peer in peers:
            with peer:
                peer.settimeout(10)
                while peer.recv(4096):
                    pass


def test_a_client_that_is_closed_keeps_no_thread_waiting() -> None:
    """A process that ends would wait for as long as a pull does."""
    asked = threading.Semaphore(0)
    told: list[Exception] = []
    calls = BlockingCalls()

    def ask(address: str) -> None:
        try:
            calls.invoke(address, RemotingCommand(1), 5000)
        except RemotingConnectError as error:
            told.append(error)

    with (
        server(lambda *_: asked.release()) as (one, _),
        server(lambda *_: asked.release()) as (
            other,
            _,
        ),
    ):
        threads = [threading.Thread(target=ask, args=(at,), daemon=True) for at in (one, other)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert asked.acquire(timeout=10)
        calls.close()
        for thread in threads:
            thread.join(2)
    assert len(told) == 2


def test_tls_with_certificates_on_both_ends(tmp_path: Path) -> None:
    """Neither a server of another authority nor a client without a certificate gets through."""
    authority, other = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # refuses in the handshake
    files = {name: str(tmp_path / name) for name in ("ca", "other", "cert", "key")}
    authority.cert_pem.write_to_path(files["ca"])
    other.cert_pem.write_to_path(files["other"])
    mine = authority.issue_cert("client")
    mine.cert_chain_pems[0].write_to_path(files["cert"])
    mine.private_key_pem.write_to_path(files["key"])
    plain = {"tls.test.mode.enable": "false", "tls.client.trustCertPath": files["ca"]}
    keys = {**plain, "tls.client.certPath": files["cert"], "tls.client.keyPath": files["key"]}
    with server(echo, context) as (address, _):
        with closing(BlockingCalls(use_tls=True, tls=keys)) as calls:
            for body in (b"one", b"two"):
                assert calls.invoke(address, RemotingCommand(1, body=body), 5000).body == body
        wrong = {**keys, "tls.client.trustCertPath": files["other"]}
        with (
            closing(BlockingCalls(use_tls=True, tls=wrong)) as calls,
            pytest.raises(RemotingConnectError, match="its certificate is refused"),
        ):
            calls.invoke(address, RemotingCommand(1), 5000)
        with (
            closing(BlockingCalls(use_tls=True, tls=plain)) as calls,
            pytest.raises(RemotingConnectError),
        ):
            calls.invoke(address, RemotingCommand(1), 5000)


def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.mark.parametrize("keys", [{}, {"tls.test.mode.enable": "false"}])
def test_tls_without_trust_takes_any_certificate(keys: dict[str, str]) -> None:
    """As RocketMQ's clients do where nobody says whom to trust: the test mode, or no trust file."""
    with (
        server(echo, server_context(trustme.CA())) as (address, _),
        closing(BlockingCalls(use_tls=True, tls=keys)) as calls,
    ):
        assert calls.invoke(address, RemotingCommand(1, body=b"x"), 5000).body == b"x"


def test_trust_in_an_authority_below_another_is_enough(tmp_path: Path) -> None:
    """Nobody has to trust all that the one at the top signs."""
    below = trustme.CA().create_child_ca()
    trust = str(tmp_path / "below")
    below.cert_pem.write_to_path(trust)
    keys = {"tls.test.mode.enable": "false", "tls.client.trustCertPath": trust}
    with (
        server(echo, server_context(below)) as (address, _),
        closing(BlockingCalls(use_tls=True, tls=keys)) as calls,
    ):
        assert calls.invoke(address, RemotingCommand(1, body=b"x"), 5000).body == b"x"


def test_a_certificate_of_another_name_is_refused(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.2").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca"))
    keys = {"tls.test.mode.enable": "false", "tls.client.trustCertPath": str(tmp_path / "ca")}
    with (
        server(echo, context) as (address, _),
        closing(BlockingCalls(use_tls=True, tls=keys)) as calls,
        pytest.raises(RemotingConnectError, match="its certificate is refused") as caught,
    ):
        calls.invoke(address, RemotingCommand(1), 5000)
    assert not caught.value.retriable
    with closing(BlockingCalls()) as calls, pytest.raises(RemotingConnectError) as caught:
        calls.invoke(address, RemotingCommand(1), 5000)  # nobody listens there any more
    assert caught.value.retriable


def test_a_key_of_a_client_that_has_a_password(tmp_path: Path) -> None:
    """The right one opens it; another one, or none, is told when the client is made."""
    mine = trustme.CA().issue_cert("client")
    key = serialization.load_pem_private_key(mine.private_key_pem.bytes(), None)
    (tmp_path / "key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    mine.cert_chain_pems[0].write_to_path(str(tmp_path / "cert"))
    keys = {
        "tls.test.mode.enable": "false",
        "tls.client.certPath": str(tmp_path / "cert"),
        "tls.client.keyPath": str(tmp_path / "key"),
    }
    BlockingCalls(use_tls=True, tls={**keys, "tls.client.keyPassword": "secret"}).close()
    for wrong in ({"tls.client.keyPassword": "other"}, {}):
        with pytest.raises(ConfigurationError, match="TLS files"):
            BlockingCalls(use_tls=True, tls={**keys, **wrong})


def test_what_tls_says_for_itself_between_two_calls_is_no_data() -> None:
    """Tickets for later sessions come after the handshake, when nobody reads yet."""
    heard = threading.Semaphore(0)

    def note(peer: socket.socket, request: RemotingCommand) -> None:
        echo(peer, request)
        heard.release()

    with (
        server(note, server_context(trustme.CA())) as (address, counts),
        closing(BlockingCalls(use_tls=True)) as calls,
    ):
        calls.oneway(address, RemotingCommand(1))
        assert heard.acquire(timeout=10)
        assert calls.invoke(address, RemotingCommand(1, body=b"x"), 5000).body == b"x"
        assert counts == [2]


def test_a_peer_that_accepts_nobody() -> None:
    """Its places are taken: that is told when the time for a connection is over."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        place = listener.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(place)
        calls = BlockingCalls(connect_timeout_ms=200)
        with pytest.raises(RemotingConnectError, match=r"no connection within 0\.2 s"):
            calls.invoke(f"127.0.0.1:{place[1]}", RemotingCommand(1), 5000)
        calls.close()
        for one in waiting:
            one.close()


def test_tls_by_an_ssl_context_of_the_application_s() -> None:
    """Names are checked by its rules, and what it does not believe is refused."""
    authority = trustme.CA()
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with (
        server(echo, server_context(authority)) as (address, _),
        closing(BlockingCalls(ssl_context=context)) as calls,
    ):
        assert calls.invoke(address, RemotingCommand(1, body=b"x"), 5000).body == b"x"
    stranger = ssl.create_default_context()
    with (
        server(echo, server_context(authority)) as (address, _),
        closing(BlockingCalls(ssl_context=stranger)) as calls,
        pytest.raises(RemotingConnectError, match="its certificate is refused"),
    ):
        calls.invoke(address, RemotingCommand(1), 5000)


@pytest.mark.parametrize("demand", ["a certificate", "another version"])
def test_what_an_end_refuses_passes_by_itself_for_nobody(demand: str) -> None:
    """It is told apart from an end that went, which may be back in a moment."""
    authority = trustme.CA()
    theirs, ours = server_context(authority), ssl.create_default_context()
    authority.configure_trust(ours)
    if demand == "a certificate":
        authority.configure_trust(theirs)
        theirs.verify_mode = ssl.CERT_REQUIRED
        theirs.maximum_version = ssl.TLSVersion.TLSv1_2
    else:
        theirs.minimum_version = ssl.TLSVersion.TLSv1_3
        ours.maximum_version = ssl.TLSVersion.TLSv1_2
    with server(echo, theirs) as (address, _), closing(BlockingCalls(ssl_context=ours)) as calls:
        with pytest.raises(RemotingConnectError, match="alert") as caught:
            calls.invoke(address, RemotingCommand(1), 5000)
        assert not caught.value.retriable


def test_what_breaks_off_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end that answered once takes our certificate; so its TLS breaks for another reason."""
    authority = trustme.CA()
    ours = ssl.create_default_context()
    authority.configure_trust(ours)
    with server(echo, server_context(authority)) as (address, _):
        calls = BlockingCalls(ssl_context=ours)
        calls.invoke(address, RemotingCommand(1), 5000)

        def broken(*_: object) -> bytes:
            raise ssl.SSLError(1, "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC]")

        monkeypatch.setattr(ssl.SSLSocket, "recv", broken)
        with pytest.raises(RemotingConnectError) as caught:
            calls.invoke(address, RemotingCommand(1), 5000)
        assert caught.value.retriable
        monkeypatch.undo()
        calls.close()
    with server(echo) as (address, _), closing(BlockingCalls(ssl_context=ours)) as calls:
        with pytest.raises(RemotingConnectError) as caught:
            calls.invoke(address, RemotingCommand(1), 5000)
        assert caught.value.retriable


def test_an_answer_of_before_says_nothing_of_another_connection() -> None:
    """Whoever has the address now may refuse what its predecessor took."""
    authority = trustme.CA()
    theirs, ours = server_context(authority), ssl.create_default_context()
    authority.configure_trust(ours)
    gone = threading.Semaphore(0)

    def once(peer: socket.socket, request: RemotingCommand) -> None:
        echo(peer, request)
        peer.shutdown(socket.SHUT_RDWR)
        gone.release()

    with server(once, theirs) as (address, _), closing(BlockingCalls(ssl_context=ours)) as calls:
        calls.invoke(address, RemotingCommand(1), 5000)
        assert gone.acquire(timeout=10)
        trustme.CA().issue_cert("127.0.0.1").configure_cert(theirs)
        with pytest.raises(RemotingConnectError, match="its certificate is refused") as caught:
            calls.invoke(address, RemotingCommand(1), 5000)
    assert not caught.value.retriable


@pytest.mark.parametrize(
    ("use_tls", "why"), [(False, "over plain TCP"), (True, "nobody would check")]
)
def test_signed_requests_go_to_those_only_who_prove_who_they_are(use_tls: bool, why: str) -> None:
    """Where a setting demands it; that is told before anything is sent."""
    with pytest.raises(ConfigurationError, match=f"requireProof: .*{why}"):
        BlockingCalls(use_tls=use_tls, tls_demanded_by="requireProof")
    BlockingCalls(use_tls=use_tls).close()
