"""BlockingCalls against a socket that behaves as it likes."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from rmq_ha.errors import (
    ConfigurationError,
    ProtocolViolation,
    RemotingConnectError,
    RemotingTimeout,
)
from rmq_ha.host.blocking import BlockingCalls
from rmq_ha.wire.command import RemotingCommand
from rmq_ha.wire.frame import FrameReader, decode_frame, encode_frame

Behaviour = Callable[[socket.socket, RemotingCommand], None]


def echo(peer: socket.socket, request: RemotingCommand) -> None:
    if not request.is_oneway:
        peer.sendall(encode_frame(request.response(0, body=request.body)))


@contextmanager
def server(behaviour: Behaviour) -> Iterator[tuple[str, list[int]]]:
    """Its address, and the numbers of requests that its connections brought."""
    listener = socket.create_server(("127.0.0.1", 0))
    counts: list[int] = []

    def serve(peer: socket.socket, number: int) -> None:
        reader = FrameReader()
        with peer:
            while True:
                try:
                    data = peer.recv(65536)
                    if not data:
                        return
                    for frame in reader.receive_data(data):
                        counts[number] += 1
                        behaviour(peer, decode_frame(*frame))
                except OSError:
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

    with server(once) as (address, counts):
        calls = BlockingCalls()
        for _ in range(3):
            calls.invoke(address, RemotingCommand(1), 5000)
            assert closed.acquire(timeout=10)
        assert counts == [1, 1, 1]
        calls.close()


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


def test_silence_and_nonsense_end_the_connection() -> None:
    """Each with its own error; nobody to connect to has one too."""
    with server(lambda peer, request: None) as (address, _):
        calls = BlockingCalls()
        with pytest.raises(RemotingTimeout, match="50 ms"):
            calls.invoke(address, RemotingCommand(1), 50)
        calls.close()
    with server(lambda peer, request: peer.sendall(b"HTTP/1.1 400\r\n\r\n")) as (address, _):
        calls = BlockingCalls()
        with pytest.raises(ProtocolViolation):
            calls.invoke(address, RemotingCommand(1), 5000)
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
