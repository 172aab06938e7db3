"""What a connection says of who is at its other end."""

from typing import NamedTuple


class Security(NamedTuple):
    """
    How far a connection can be trusted.

    :ivar is_tls: nobody listens.
    :ivar names: of the client's certificate, which a trust root of ours vouches for; none: it
        showed none.
    """

    is_tls: bool
    names: tuple[str, ...] = ()


PLAIN = Security(is_tls=False)
