"""Decides which masters a slave follows, among those that a name server or a controller names."""

from collections.abc import Callable

from twisted.logger import Logger

from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.model.networks import Networks


class TrustedMasters:
    """
    Keeps this broker from following a false "master", which would get its log and its signature.

    :param trusted: `haTrustedMasters`; if empty, every master is trusted, as in 4.9.7.
    :ivar refused: number of learned addresses that are not trusted.
    """

    log = Logger()

    def __init__(self, trusted: Networks) -> None:
        self._trusted = trusted
        self._told = ""
        self.refused = 0

    @property
    def text(self) -> str:
        """`haTrustedMasters`, as the operator wrote it."""
        return self._trusted.text

    def only_trusted(self, follow: Callable[[str | None], None]) -> Callable[[str | None], None]:
        """
        Wrap a function that follows a master.

        :returns: a function that calls `follow` with None instead of an address that is not
            trusted.
        """

        def learned(address: str | None) -> None:
            follow(address if address is None or self.trusts(address) else None)

        return learned

    def trusts(self, address: str, named_by: str = "the name server") -> bool:
        """
        Whether the broker at this address may be followed; a refusal is counted and logged.

        :param address: `host:port`.
        :param named_by: the server that named the address, for the log.
        """
        if not self._trusted or host_of(address) in self._trusted:
            return True
        self.refused += 1
        if address != self._told:
            self._told = address
            self.log.error(
                "{named_by} says that this broker's master is at {address}, which is not in "
                "haTrustedMasters={trusted}: it is neither followed nor asked. Add the address if "
                "it is the master's; if not, somebody registers at {named_by} in its name",
                named_by=named_by,
                address=address,
                trusted=self._trusted.text,
            )
        return False
