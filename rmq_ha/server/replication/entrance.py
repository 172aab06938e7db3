"""Decides which machine may be a slave: by address, by certificate and by the shared secret."""

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Protocol
from twisted.logger import Logger

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.model.networks import Networks
from rmq_ha.base.seams import Host
from rmq_ha.base.tls.ends import TlsDoor
from rmq_ha.base.tls.ha import HaTls
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.base.tls.server import TlsMode
from rmq_ha.server.replication.door import SecretDoor
from rmq_ha.server.replication.secret import MasterProof, make_nonce
from rmq_ha.server.replication.shared_secrets import SharedSecrets


class Entrance:
    """
    The checks that a connection has to pass before it gets a feed.

    :param accept: makes a feed's protocol for a slave that is let in.
    :param is_open: returns whether this broker feeds slaves at all at the moment.
    :ivar refused: number of connections that were not in `haAllowedSlaves`, or did not know
        `haSecret`.
    """

    log = Logger()

    def __init__(
        self,
        host: Host,
        configuration: BrokerConfiguration,
        tls: HaTls,
        secrets: SharedSecrets,
        refusals: Refusals,
        accept: Callable[[], Protocol],
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        own = configuration.ours
        self._host = host
        self._patience = configuration.store.ha_housekeeping_interval / 1000
        self._tls = tls
        self._refusals = refusals
        self._accept = accept
        self._is_open = is_open
        self._allowed = Networks(own.ha_allowed_slaves)
        self._secrets = secrets
        self._wants_proof = own.ha_secret_required
        self._doors: dict[Any, None] = {}
        self.refused = 0

    def meet(self, address: IAddress | None) -> Protocol | None:
        """
        Meet a new connection. It gets no feed before the TLS handshake and the proof.

        :returns: the protocol for the connection; None: its address is not in `haAllowedSlaves`, or
            this broker feeds no slaves now.
        """
        host = str(getattr(address, "host", ""))
        if self._allowed and host not in self._allowed:
            allowed = self._allowed.text
            self._refuse(
                host, f"it is not in haAllowedSlaves={allowed}; add it there if it is a slave"
            )
            return None
        if not self._is_open():
            self.log.debug("{peer} connects, but this broker does not lead", peer=host)
            return None
        if self._tls.mode is TlsMode.DISABLED:
            return self._ask()
        clock = self._host.clock
        return TlsDoor(clock, self._ask, self._tls, self._refusals, self._patience, self._doors)

    def close(self) -> None:
        """Close the connections that have not passed the checks yet."""
        for door in list(self._doors):
            door.abort()

    def _ask(self) -> Protocol:
        if not self._wants_proof:
            return self._accept()
        proof = MasterProof(self._secrets.all, make_nonce(self._host.random))
        return SecretDoor(self._host.clock, self._accept, proof, self._refuse, self._doors)

    def _refuse(self, host: str, reason: str) -> None:
        self.refused += 1
        more = self._refusals.admit(host, reason)
        if more is not None:
            self.log.warn(
                "{peer} refused on the replication port: {reason}{more}",
                peer=host,
                reason=reason,
                more=more,
            )
