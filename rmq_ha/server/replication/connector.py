"""Opens a slave's connection to its master: plain or by TLS, and with the shared secret."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.seams import Host
from rmq_ha.base.tls.ends import connect_tls
from rmq_ha.base.tls.ha import HaTls
from rmq_ha.server.replication.door import SecretCall
from rmq_ha.server.replication.protocol import ReplicaFactory
from rmq_ha.server.replication.secret import SlaveProof, make_nonce
from rmq_ha.server.replication.shared_secrets import SharedSecrets

CONNECT_SECONDS = 5.0


class MasterConnector:
    """
    Does the slave's part of the checks before its replica hears a byte; `Entrance` does the
    master's.

    :param tls: with `tls.ha.enable=true` the connection is a TLS connection.
    :param secrets: the first of them is proven to a master that asks for a proof; the master must
        know it.
    """

    def __init__(
        self, host: Host, configuration: BrokerConfiguration, tls: HaTls, secrets: SharedSecrets
    ) -> None:
        self._host = host
        self._is_required = configuration.ours.ha_secret_required
        self._tls = tls
        self._secrets = secrets

    def open(self, name: str, port: int, build: Callable[[], Protocol]) -> "Deferred[Any]":
        """
        Connect to a master.

        :param name: host name or IP address of the master.
        :param build: makes the protocol that replicates.
        :returns: fires with that protocol, connected; fails with an error of Twisted's connections,
            with `TlsRefused`, or with `ReplicationError` where the secret is missing or wrong.
        """
        endpoint = self._host.network.client(name, port, timeout=CONNECT_SECONDS)
        is_guarded = bool(self._secrets.all)

        def guarded() -> SecretCall:
            proof = SlaveProof(self._secrets.all[0], make_nonce(self._host.random))
            return SecretCall(self._host.clock, build, proof, is_required=self._is_required)

        first: Callable[[], Protocol] = guarded if is_guarded else build
        connected: Deferred[Any]
        if self._tls.is_enabled:
            session = self._tls.link_session(name)
            connected = connect_tls(endpoint, self._host.clock, first, session)
        else:
            connected = endpoint.connect(ReplicaFactory.forProtocol(first))
        return connected.addCallback(_when_opened) if is_guarded else connected


def _when_opened(call: Any) -> "Deferred[Any]":
    opened: Deferred[Any] = call.opened
    return opened
