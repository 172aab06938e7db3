"""The surroundings of this very process; only `app/` may look at them."""

import os
import socket

from rmq_ha.config.surroundings import Surroundings


def local_address() -> str:
    """
    The IPv4 address that packets to other machines leave from, or `127.0.0.1`.

    Connecting a datagram socket picks the address and sends nothing.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            address = str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
    return "127.0.0.1" if address == "0.0.0.0" else address


def real_surroundings(directory: str) -> Surroundings:
    """:param directory: what relative store paths start from (twistd's `--rundir`)."""
    return Surroundings(
        environ=dict(os.environ),
        home=os.path.expanduser("~"),
        host_name=socket.gethostname() or "DEFAULT_BROKER",
        address=local_address(),
        directory=os.path.abspath(directory),
    )
