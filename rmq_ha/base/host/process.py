"""Facts about the running process that a client needs."""

import os
import socket

from rmq_ha.base.model.process import Process


def local_address() -> str:
    """
    Return the IPv4 address from which packets to other machines leave, or `127.0.0.1`.

    Connecting a datagram socket picks the address and sends nothing.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            address = str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
    return "127.0.0.1" if address == "0.0.0.0" else address


process_id = os.getpid
"""Returns the number of this process, which a fork changes."""


def this_process() -> Process:
    """Return the facts about this process. Ask anew each time: a fork has other facts."""
    return Process(os.getpid(), local_address(), dict(os.environ), os.path.expanduser("~"))


def host_name() -> str:
    return socket.gethostname()


def lower_priority() -> None:
    """Give this process the lowest priority, where the system has priorities."""
    if hasattr(os, "nice"):
        os.nice(19)
