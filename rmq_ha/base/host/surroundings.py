"""The surroundings of this process."""

import os
import socket

from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.host.process import local_address


def real_surroundings(directory: str) -> Surroundings:
    """
    Return environment, home, name and address of this machine.

    :param directory: where relative paths of stores start (twistd's `--rundir`).
    """
    return Surroundings(
        environ=dict(os.environ),
        home=os.path.expanduser("~"),
        host_name=socket.gethostname() or "DEFAULT_BROKER",
        address=local_address(),
        directory=os.path.abspath(directory),
        has_ipv6=has_ipv6(),
        resolve=address_of,
    )


def has_ipv6() -> bool:
    """Return whether a port can listen on IPv6 here."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as trial:
            trial.bind(("::", 0))
    except OSError:
        return False
    return True


def address_of(name: str) -> str | None:
    """
    Return the address of a host name, an IPv4 address before IPv6; None if the name is not known.

    The call blocks, so it is only for the time before a server starts.
    """
    try:
        looked_up = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    addresses = [str(item[4][0]) for item in sorted(looked_up, key=lambda item: item[0])]
    return addresses[0] if addresses else None
