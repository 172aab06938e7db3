"""The process that we are in, as a client needs to know it."""

import os
import socket

from rmq_ha.base.model.process import Process


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


process_id = os.getpid
"""Changes with a fork."""


def this_process() -> Process:
    """Asked for anew each time: after a fork it is another one."""
    return Process(os.getpid(), local_address(), dict(os.environ), os.path.expanduser("~"))


def host_name() -> str:
    return socket.gethostname()


def lower_priority() -> None:
    if hasattr(os, "nice"):
        os.nice(19)
