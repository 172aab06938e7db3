"""The surroundings of this very process."""

import os
import socket

from rmq_ha.config.surroundings import Surroundings
from rmq_ha.host.process import local_address


def real_surroundings(directory: str) -> Surroundings:
    """:param directory: what relative store paths start from (twistd's `--rundir`)."""
    return Surroundings(
        environ=dict(os.environ),
        home=os.path.expanduser("~"),
        host_name=socket.gethostname() or "DEFAULT_BROKER",
        address=local_address(),
        directory=os.path.abspath(directory),
    )
