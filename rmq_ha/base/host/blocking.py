"""BlockingCalls: requests over plain blocking sockets, without reactor and threads, safe to fork.

The threads of a process share one connection for each address, with one call at a time on it. A
forked process leaves the connections of its parent alone and makes its own.
"""

import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from rmq_ha.base.errors import (
    ConfigurationError,
    ProtocolViolation,
    RemotingConnectError,
    RemotingTimeout,
)
from rmq_ha.base.host.process import process_id
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.tls.options import TlsOptions, check_proof
from rmq_ha.base.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame

_CHUNK = 1 << 18
_MOST_OPAQUE = 0x7FFFFFFF
_BROKEN_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError)

seconds = time.monotonic
"""Returns the time of a steady clock, in seconds."""
sleep = time.sleep
"""Lets this thread wait for a number of seconds."""


def pause(ms: float) -> None:
    """Let this thread wait for `ms`; return at once if it is not above 0."""
    sleep(max(0.0, ms / 1000))


def now_ms() -> int:
    """Return the current time, in ms since the epoch."""
    return time.time_ns() // 1_000_000


def http_get(url: str, timeout_ms: float) -> tuple[int, bytes]:
    """
    Return status and body of an HTTP page; the body is empty if the status is an error.

    :raises OSError: the server does not answer.
    """
    import urllib.error  # here, as it takes 20 ms of every script that sends a message
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=timeout_ms / 1000) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, b""


class BlockingCalls:
    """
    Sends requests to any address and waits for the answers.

    :param sign: makes a signed copy of a request to an address; None to sign no requests.
    """

    def __init__(
        self,
        *,
        use_tls: bool = False,
        tls: Mapping[str, str] | None = None,
        tls_demanded_by: str = "",
        ssl_context: ssl.SSLContext | None = None,
        connect_timeout_ms: int = 3_000,
        sign: Callable[[RemotingCommand, str], RemotingCommand] | None = None,
    ) -> None:
        """
        :param ssl_context: the TLS context of all connections, instead of `use_tls` and `tls`.
        :param tls_demanded_by: see `rmq_ha.base.tls.client.ClientTls`.
        :raises ConfigurationError: a `tls.*` key, or a file that it names, is not valid.
        """
        self._tls: _BlockingTls | None
        if ssl_context is not None:
            self._tls = _BlockingTls(ssl_context, True)
        else:
            self._tls = _context(tls or {}, use_tls, tls_demanded_by)
        self._connect_timeout = connect_timeout_ms / 1000
        self._sign = sign
        self._closed = False
        self._mine = _ProcessState(process_id())

    def invoke(self, address: str, command: RemotingCommand, timeout_ms: float) -> RemotingCommand:
        """
        Send a request and wait for the answer.

        :param timeout_ms: time for connecting, sending and the answer together, in ms.
        :raises RemotingTimeout: the time is over.
        :raises RemotingConnectError: no connection could be made, or it was lost.
        :raises ProtocolViolation: the request does not fit into a frame, or the answer is no frame.
        """
        deadline = seconds() + timeout_ms / 1000
        connection = self._connection(address)
        if not connection.lock.acquire(timeout=max(0.0, timeout_ms / 1000)):
            raise RemotingTimeout(f"{address}: other threads' calls took {timeout_ms:.0f} ms")
        try:
            return connection.ask(self._sign_request(command, address), deadline, timeout_ms)
        finally:
            connection.lock.release()

    def oneway(self, address: str, command: RemotingCommand) -> None:
        """
        Send a request that gets no answer.

        :raises RemotingTimeout: the peer did not read in time.
        :raises RemotingConnectError: no connection could be made, or it was lost.
        """
        connection = self._connection(address)
        request = replace(command, flag=command.flag | FLAG_ONEWAY)
        with connection.lock:
            connection.tell(self._sign_request(request, address), seconds() + self._connect_timeout)

    def close(self) -> None:
        """Close all connections of this process. A second call changes nothing."""
        self._closed = True
        self._mine.close(is_ours=self._mine.pid == process_id())

    def _sign_request(self, command: RemotingCommand, address: str) -> RemotingCommand:
        return command if self._sign is None else self._sign(command, address)

    def _connection(self, address: str) -> "_BlockingConnection":
        if self._closed:
            raise RemotingConnectError(f"{address}: this client is closed; make a new one")
        mine = self._of_this_process()
        with mine.lock:
            connection = mine.connections.get(address)
            if connection is None:
                connection = _BlockingConnection(address, self._tls, self._connect_timeout)
                mine.connections[address] = connection
        return connection

    def _of_this_process(self) -> "_ProcessState":
        mine = self._mine
        if mine.pid != process_id():
            # Locks are new too: a thread that the fork left behind may have held the old ones.
            mine.close(is_ours=False)
            mine = self._mine = _ProcessState(process_id())
        return mine


class _ProcessState:
    """The connections that one process has made. A fork gets a new one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.lock = threading.Lock()
        self.connections: dict[str, _BlockingConnection] = {}

    def close(self, *, is_ours: bool) -> None:
        connections, self.connections = self.connections, {}
        for connection in connections.values():
            connection.close(is_ours=is_ours)


class _BlockingTls(NamedTuple):
    context: ssl.SSLContext
    is_verified: bool


class _BlockingConnection:
    """The connection to one address, opened when needed, and again after it was lost."""

    def __init__(self, address: str, tls: _BlockingTls | None, connect_timeout: float) -> None:
        self.address = address
        self.lock = threading.Lock()
        self._tls = tls
        self._connect_timeout = connect_timeout
        self._socket: socket.socket | None = None
        self._reader = FrameReader()
        self._opaque = 0
        self._has_heard = False

    def ask(self, command: RemotingCommand, deadline: float, timeout_ms: float) -> RemotingCommand:
        """
        Send a request and return its answer.

        :raises RemotingTimeout: the answer did not come before the deadline.
        :raises RemotingConnectError: no connection could be made, or it was lost.
        :raises ProtocolViolation: the request does not fit into a frame, or the answer is no frame.
        """
        self._opaque = self._opaque % _MOST_OPAQUE + 1
        opaque = self._opaque
        try:
            opened = self._send(replace(command, opaque=opaque), deadline)
            return self._receive(opened, opaque, deadline)
        except TimeoutError:
            self.close()
            raise RemotingTimeout(
                f"{self.address} did not answer within {timeout_ms:.0f} ms"
            ) from None
        except OSError as error:
            self.close()
            raise self._lost(error) from None
        except ProtocolViolation:
            self.close()
            raise

    def tell(self, command: RemotingCommand, deadline: float) -> None:
        """Send a request that gets no answer; raises the same as `ask`."""
        try:
            self._send(command, deadline)
        except TimeoutError:
            self.close()
            raise RemotingTimeout(f"{self.address} takes no data") from None
        except OSError as error:
            self.close()
            raise self._lost(error) from None

    def close(self, *, is_ours: bool = True) -> None:
        """
        Close the descriptor.

        :param is_ours: whether this process made the connection. Else the parent process still uses
            it, and its peer must not notice the closing.
        """
        opened, self._socket = self._socket, None
        if opened is not None:
            try:
                if is_ours:
                    opened.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed already
            opened.close()

    def _lost(self, error: OSError) -> RemotingConnectError:
        is_refusal = isinstance(error, ssl.SSLError) and not isinstance(error, _BROKEN_OFF)
        # A peer that has answered has accepted certificate and version, so the fault may pass.
        retriable = self._has_heard or not is_refusal
        return RemotingConnectError(f"{self.address}: {_reason(error)}", retriable=retriable)

    def _send(self, command: RemotingCommand, deadline: float) -> socket.socket:
        frame = encode_frame(command)
        opened = self._fresh() or self._open(deadline)
        opened.settimeout(_seconds_left(deadline))
        opened.sendall(frame)
        return opened

    def _receive(self, opened: socket.socket, opaque: int, deadline: float) -> RemotingCommand:
        while True:
            opened.settimeout(_seconds_left(deadline))
            data = opened.recv(_CHUNK)
            if not data:
                raise ConnectionResetError("the connection was closed before the answer came")
            self._has_heard = True
            for frame in self._reader.receive_data(data):
                assert isinstance(frame, tuple)  # this reader looks for no runs
                response = decode_frame(*frame)
                if response.is_response and response.opaque == opaque:
                    return response

    def _fresh(self) -> socket.socket | None:
        """Return the open connection; None if the peer has closed it since the last call."""
        opened = self._socket
        if opened is None:
            return None
        poll = select.poll()  # select() knows no descriptors from 1024 on
        poll.register(opened, select.POLLIN)
        while poll.poll(0):
            try:
                opened.settimeout(0)
                data = opened.recv(_CHUNK)
                if not data:
                    break
                self._reader.receive_data(data)  # brokers' own requests are ignored
            except (BlockingIOError, ssl.SSLWantReadError):
                return opened
            except (OSError, ProtocolViolation):
                break
        else:
            return opened
        self.close()
        return None

    def _open(self, deadline: float) -> socket.socket:
        try:
            host, port = parse_host_port(self.address)
        except ValueError as error:
            raise ConnectionError(str(error)) from None
        timeout = min(self._connect_timeout, _seconds_left(deadline))
        self._has_heard = False
        try:
            opened = socket.create_connection((host, port), timeout)
        except UnicodeError as error:
            raise ConnectionError(f"{host!r} is no host name: {error}") from None
        except TimeoutError:
            raise ConnectionError(f"no connection within {timeout:.1f} s") from None
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            name = host if self._tls.is_verified else None
            try:
                opened = self._tls.context.wrap_socket(opened, server_hostname=name)
            except OSError:
                opened.close()
                raise
        self._socket = opened
        self._reader = FrameReader()
        return opened


def _seconds_left(deadline: float) -> float:
    left = deadline - seconds()
    if left <= 0:
        raise TimeoutError
    return left


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    return error.strerror or str(error) or type(error).__name__


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _context(keys: Mapping[str, str], use_tls: bool, demanded_by: str) -> _BlockingTls | None:
    """
    Return the TLS settings of a client's connections; None for connections without TLS.

    :raises ConfigurationError: a key or a file is not valid.
    """
    options = TlsOptions(keys, _read)
    is_tls = use_tls or options.is_true("tls.enable")
    if demanded_by:
        check_proof(demanded_by, options, is_tls=is_tls)
    if not is_tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if options.is_test_mode("client"):
        return _BlockingTls(context, False)
    trust = options.text("tls.client.trustCertPath")
    verifies = options.is_true("tls.client.authServer", bool(trust))
    if verifies and not trust:
        raise ConfigurationError(
            "tls.client.authServer=true needs tls.client.trustCertPath: the file of the "
            "certificates that servers' certificates come from"
        )
    certificate, key = options.text("tls.client.certPath"), options.text("tls.client.keyPath")
    try:
        if certificate:
            password = options.text("tls.client.keyPassword") or None
            context.load_cert_chain(certificate, key or None, lambda: password or "")
        if verifies:
            context.load_verify_locations(trust)
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.verify_mode = ssl.CERT_REQUIRED
            context.check_hostname = True
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (certificate, key, trust)))
        raise ConfigurationError(f"the TLS files of this client ({files}): {error}") from None
    return _BlockingTls(context, verifies)
