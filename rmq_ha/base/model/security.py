"""Facts about a connection that say who is at its other end."""

from typing import NamedTuple


class Security(NamedTuple):
    """
    The facts by which a server decides how far to trust a connection.

    :ivar is_tls: whether the connection is encrypted.
    :ivar names: the names in the client's certificate, if a trust root of this server vouches for
        it; empty if the client showed none.
    """

    is_tls: bool
    names: tuple[str, ...] = ()


PLAIN = Security(is_tls=False)
