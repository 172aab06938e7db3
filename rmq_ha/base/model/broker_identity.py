"""BrokerIdentity: how a broker presents itself to name servers.

Spec: remoting.md, sections 2.3 (codes 103, 104, 322) and 9.1.
"""

from collections.abc import Mapping
from typing import NamedTuple

MASTER_ID = 0


class BrokerIdentity(NamedTuple):
    """
    The name and addresses by which a broker registers at name servers.

    :ivar broker_id: `MASTER_ID`, or the id of a slave.
    :ivar address: `brokerIP1:listenPort`, exactly as clients are to use it.
    :ivar ha_address: `brokerIP2:haListenPort`.
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str = ""

    def to_ext(self) -> dict[str, str]:
        """Return the ext fields of every request that names the broker."""
        return {
            "brokerAddr": self.address,
            "brokerId": str(self.broker_id),
            "brokerName": self.broker_name,
            "clusterName": self.cluster,
            "haServerAddr": self.ha_address,
        }

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> "BrokerIdentity":
        """
        Read the identity from the ext fields of a request.

        :raises ValueError: a field is missing, or the id is not a number of at least 0.
        """
        missing = [
            name for name in ("clusterName", "brokerName", "brokerAddr") if not ext.get(name)
        ]
        if missing:
            raise ValueError(f"the request lacks {', '.join(missing)}")
        broker_id = ext.get("brokerId", "")
        if not (broker_id.isascii() and broker_id.isdecimal() and len(broker_id) < 19):
            raise ValueError(f"brokerId {broker_id!r} is not a number from 0 on")
        return cls(
            ext["clusterName"],
            ext["brokerName"],
            int(broker_id),
            ext["brokerAddr"],
            ext.get("haServerAddr") or "",
        )
