"""Says when a server is open to the network."""

from rmq_ha.config.load import ANY_ADDRESS
from rmq_ha.model.networks import EVERYBODY

_LOOPBACK = ("127.", "::1", "localhost")
_ENFORCING = "enforcing"


def exposure(
    bind_address: str, options: dict[str, str], acl_plug_in: str | None = None
) -> str | None:
    """
    A warning for a server that anybody in the network may use; None when it is not one.

    :param acl_plug_in: of a broker; None for a server that checks no access.
    """
    if acl_plug_in or options.get("tls.server.mode") == _ENFORCING:
        return None
    if bind_address.startswith(_LOOPBACK):
        return None
    acl = "" if acl_plug_in is None else "aclEnable=true, "
    return (
        f"listening on {_where(bind_address)} without ACL or TLS: whoever reaches this port may "
        f"read, write and configure; set bindAddress, {acl}or tls.server.mode=enforcing"
    )


def replication_exposure(
    bind_address: str, options: dict[str, str], port: int, allowed_slaves: str
) -> str | None:
    """
    A warning for a broker that guards its clients' ports and not this one; None when it does.

    :param port: for slaves.
    :param allowed_slaves: `haAllowedSlaves`.
    """
    if allowed_slaves.strip() not in ("", EVERYBODY):
        return None
    if options.get("tls.ha.mode") == _ENFORCING or bind_address.startswith(_LOOPBACK):
        return None
    return (
        f"port {port} on {_where(bind_address)} gives every message to whoever connects and says "
        "to be a slave, and believes its acknowledgements: set haAllowedSlaves, better "
        "tls.ha.mode=enforcing with tls.ha.trustCertPath"
    )


def group_exposure(bind_address: str, options: dict[str, str], port: int) -> str | None:
    """
    The same for a member of a DLedger group.

    :param port: for the other members.
    """
    if options.get("tls.ha.mode") == _ENFORCING or bind_address.startswith(_LOOPBACK):
        return None
    return (
        f"port {port} on {_where(bind_address)} believes whoever comes from the address of a "
        "member of the group: set tls.ha.mode=enforcing with tls.ha.trustCertPath if other "
        "processes run there, or the network can be listened to"
    )


def _where(bind_address: str) -> str:
    return "all addresses" if bind_address in ANY_ADDRESS else bind_address
