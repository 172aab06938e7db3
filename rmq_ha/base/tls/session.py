"""One TLS connection without a socket: bytes in, bytes out."""

from OpenSSL import SSL

from rmq_ha.base.errors import TlsRefused
from rmq_ha.base.tls.peer import PeerCheck

_RECORD = 1 << 14
_PIECE = 1 << 16

# OpenSSL's errors as sentences for people.
_REASONS = {
    "unsupported protocol": "it offers only TLS versions older than 1.2",
    "version too low": "it offers only TLS versions older than 1.2",
    "tlsv1 alert protocol version": "it does not speak TLS 1.2 or later",
    "wrong version number": "it does not speak TLS",
    "packet length too long": "it does not speak TLS",
    "unknown protocol": "it does not speak TLS",
    "http request": "it speaks HTTP",
    "no shared cipher": "the two sides have no cipher suite in common",
    "no suitable signature algorithm": "it supports no algorithm of this side's certificate",
    "peer did not return a certificate": "it showed no certificate, and one is required",
    "tlsv13 alert certificate required": "it requires a certificate, and this side has none",
    "tlsv1 alert unknown ca": "it does not trust the root of this side's certificate",
    "ssl/tls alert bad certificate": "it does not accept this side's certificate",
    # OpenSSL sends this alert when a certificate has a wrong name.
    "tlsv1 alert internal error": "it does not accept this side's certificate: a wrong name?",
    "ssl/tls alert certificate expired": "this side's certificate has expired",
    "ssl/tls alert certificate unknown": "it does not accept this side's certificate",
    "ssl/tls alert handshake failure": "it refuses the handshake (no certificate, or no cipher)",
}
_OLD_PREFIX = "sslv3 alert "


class TlsSession:
    """
    The protocol of one connection, around OpenSSL's memory buffers.

    :ivar is_secured: whether the handshake is done, so that application data may be sent.
    :ivar is_closed: whether the other end has closed its side.
    :ivar check: the check of the other end's certificate.
    """

    def __init__(self, context: SSL.Context, check: PeerCheck, *, connects: bool) -> None:
        """:param connects: whether this end is the client."""
        self.check = check
        self.is_secured = False
        self.is_closed = False
        self._connection = SSL.Connection(context, None)
        self._connection.set_app_data(check)
        if connects:
            self._connection.set_connect_state()
        else:
            self._connection.set_accept_state()

    def name_server(self, name: str) -> None:
        """Set the server name that the handshake sends (SNI); call this before `start`."""
        self._connection.set_tlsext_host_name(name.encode("idna"))

    def start(self) -> None:
        """
        Begin the handshake; only for the connecting end.

        :raises TlsRefused: this end has no version or cipher to offer.
        """
        self._shake_hands()

    def receive_data(self, data: bytes) -> bytes:
        """
        Decrypt bytes from the transport. Afterwards `data_to_send` may have bytes.

        :returns: data for the application; may be empty.
        :raises TlsRefused: the connection cannot be used; `data_to_send` may have an alert.
        """
        self._connection.bio_write(data)
        if not self.is_secured:
            self._shake_hands()
        return self._plain()

    def send(self, data: bytes) -> None:
        """
        Encrypt data of the application; only after the handshake.

        :raises TlsRefused: the connection cannot be used.
        """
        left = memoryview(data)
        try:
            while left:  # a record at a time
                left = left[self._connection.send(left) :]
        except SSL.Error as error:
            raise self._refused(error) from None

    def data_to_send(self) -> bytes:
        """Return and remove the encrypted bytes that are to be written to the transport."""
        pieces: list[bytes] = []
        while True:
            try:
                piece = self._connection.bio_read(_PIECE)
            except SSL.WantReadError:
                break
            if len(piece) < _PIECE and not pieces:
                return piece
            pieces.append(piece)
        return b"".join(pieces)

    def close(self) -> None:
        try:
            self._connection.shutdown()
        except SSL.Error:
            pass  # in the middle of a handshake there is nothing to say good-bye to

    @property
    def version(self) -> str:
        """The version of the protocol, such as `TLSv1.3`."""
        return self._connection.get_protocol_version_name()

    def _shake_hands(self) -> None:
        try:
            self._connection.do_handshake()
        except SSL.WantReadError:
            return
        except SSL.Error as error:
            raise self._refused(error) from None
        self.is_secured = True

    def _plain(self) -> bytes:
        receive = self._connection.recv
        pieces = []
        try:
            while True:
                pieces.append(receive(_RECORD))
        except SSL.WantReadError:
            pass
        except SSL.ZeroReturnError:
            self.is_closed = True
        except SSL.Error as error:
            raise self._refused(error) from None
        return b"".join(pieces)

    def _refused(self, error: SSL.Error) -> TlsRefused:
        if self.check.reason:
            return TlsRefused(self.check.reason)
        queues = [item for item in error.args if isinstance(item, list)]
        said = next((str(why) for queue in queues for *_, why in reversed(queue)), "")
        plain = said.replace(_OLD_PREFIX, "ssl/tls alert ")
        return TlsRefused(_REASONS.get(plain) or said or "it broke off the TLS connection")
