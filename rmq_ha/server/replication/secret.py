"""The shared secret (`haSecret`), and how two rmq-ha ends prove to each other that they know it.

The master's bytes look like transfer frames at impossible offsets. So a slave that does not know
this exchange closes the connection, and its log says why. Nobody sends anything else before the
exchange is over.

===============  ==========================================================
master to slave  int64 CHALLENGE, int32 32, its nonce (32 bytes)
slave to master  int64 PROOF, its nonce (32), proof (32)
master to slave  int64 ANSWER, int32 32, proof (32)
===============  ==========================================================

A proof is the HMAC-SHA256, with the secret as key, of the prover's role and both nonces. It proves
only who connects. Later bytes are not signed; TLS protects them.
"""

from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac_digest
from random import Random
from struct import Struct

from rmq_ha.base.errors import ReplicationError

CHALLENGE, PROOF, ANSWER = (-0x726D716861000000 - number for number in (1, 2, 3))
SIZE = 32
_TO_SLAVE = Struct(f">qi{SIZE}s")
_TO_MASTER = Struct(f">q{SIZE}s{SIZE}s")


def make_nonce(random: Random) -> bytes:
    """
    Make a nonce.

    :param random: the random source of the `Host`: the system's, unless it is simulated.
    """
    return random.getrandbits(8 * SIZE).to_bytes(SIZE, "big")


def _prove(secret: bytes, who: bytes, masters: bytes, slaves: bytes) -> bytes:
    return hmac_digest(secret, b"rmq-ha replication, " + who + masters + slaves, sha256)


class MasterProof:
    """
    The master's half of the exchange.

    :param secrets: the slave may know any of them; the master answers with the same.
    :ivar hello: the challenge, to be sent at once.
    """

    def __init__(self, secrets: Sequence[bytes], nonce: bytes) -> None:
        self._secrets = secrets
        self._nonce = nonce
        self._data = b""
        self.hello = _TO_SLAVE.pack(CHALLENGE, SIZE, nonce)

    def receive_data(self, data: bytes) -> bytes:
        """
        Take bytes that the slave sent.

        :returns: the master's proof, which ends the exchange; empty: more bytes have to come.
        :raises ReplicationError: the slave does not know the secret.
        """
        self._data += data
        if self._data[:8] != PROOF.to_bytes(8, "big", signed=True)[: len(self._data)]:
            raise ReplicationError(
                "it does not answer the challenge: it needs this broker's haSecret"
            )
        if len(self._data) < _TO_MASTER.size:
            return b""
        if len(self._data) > _TO_MASTER.size:
            raise ReplicationError("it says more than its proof")
        _, nonce, proof = _TO_MASTER.unpack(self._data)
        for secret in self._secrets:
            if compare_digest(proof, _prove(secret, b"slave", self._nonce, nonce)):
                ours = _prove(secret, b"master", self._nonce, nonce)
                return _TO_SLAVE.pack(ANSWER, SIZE, ours)
        raise ReplicationError("its haSecret differs from this broker's")


class SlaveProof:
    """
    The slave's half of the exchange.

    :ivar has_begun: whether the master has sent bytes.
    :ivar is_done: whether the master has proven that it knows the secret.
    """

    def __init__(self, secret: bytes, nonce: bytes) -> None:
        self._secret = secret
        self._nonce = nonce
        self._masters = b""
        self._data = b""
        self.has_begun = False
        self.is_done = False

    def receive_data(self, data: bytes) -> bytes:
        """
        Take bytes that the master sent.

        :returns: the bytes to send.
        :raises ReplicationError: the master does not know the secret, or does not ask for it.
        """
        self.has_begun = True
        self._data += data
        if len(self._data) < _TO_SLAVE.size:
            return b""
        if len(self._data) > _TO_SLAVE.size:
            raise ReplicationError(
                "the master says more than its challenge; does it know haSecret?"
            )
        kind, _, value = _TO_SLAVE.unpack(self._data)
        self._data = b""
        if kind == CHALLENGE and not self._masters:
            self._masters = value
            proof = _prove(self._secret, b"slave", value, self._nonce)
            return _TO_MASTER.pack(PROOF, self._nonce, proof)
        expected = _prove(self._secret, b"master", self._masters, self._nonce)
        if kind != ANSWER or not self._masters or not compare_digest(value, expected):
            raise ReplicationError("the master's haSecret differs from this slave's")
        self.is_done = True
        return b""
