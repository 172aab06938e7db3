"""Says when a server is open to the network."""

from rmq_ha.config.load import ANY_ADDRESS

_LOOPBACK = ("127.", "::1", "localhost")


def exposure(
    bind_address: str, options: dict[str, str], acl_plug_in: str | None = None
) -> str | None:
    """
    A warning for a server that anybody in the network may use; None when it is not one.

    :param acl_plug_in: of a broker; None for a server that checks no access.
    """
    if acl_plug_in or options.get("tls.server.mode") == "enforcing":
        return None
    if bind_address.startswith(_LOOPBACK):
        return None
    where = "all addresses" if bind_address in ANY_ADDRESS else bind_address
    return (
        f"listening on {where} without ACL or TLS: whoever reaches this port may read, write and "
        f"configure; set bindAddress, {'' if acl_plug_in is None else 'aclEnable=true, '}or "
        f"tls.server.mode=enforcing"
    )
