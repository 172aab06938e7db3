"""Which masters a slave follows, of those that a name server or a controller names."""

from collections.abc import Callable

from twisted.logger import Logger

from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.model.networks import Networks


class TrustedMasters:
    """
    Keeps this broker, its log and its signature from a "master" that anybody registered.

    :param trusted: `haTrustedMasters`; of nobody: everybody, as 4.9.7.
    :ivar refused: how many addresses that were learned are not trusted.
    """

    log = Logger()

    def __init__(self, trusted: Networks) -> None:
        self._trusted = trusted
        self._told = ""
        self.refused = 0

    @property
    def text(self) -> str:
        """`haTrustedMasters`, as it was given."""
        return self._trusted.text

    def only(self, follow: Callable[[str | None], None]) -> Callable[[str | None], None]:
        """:returns: a function that calls `follow` with None in place of who is not trusted."""

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
                "{named_by} says that our master is at {address}, which is not in "
                "haTrustedMasters={trusted}: it is neither followed nor asked. Add it there if it "
                "is ours; if not, somebody registers at {named_by} in its name",
                named_by=named_by,
                address=address,
                trusted=self._trusted.text,
            )
        return False
