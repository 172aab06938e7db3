"""Locks the store of a stopped broker, and reads its properties file, for several commands."""

from collections.abc import Iterator
from contextlib import contextmanager

from rmq_ha.base.config import properties
from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.dledger import is_dledger
from rmq_ha.base.config.load import load_broker
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.seams import Disk
from rmq_ha.ops.admin.session import ChangeRefused


@contextmanager
def locked(disk: Disk, root: str) -> Iterator[None]:
    """
    Keep the store locked while the block runs, so that no broker opens it.

    :raises StoreLocked: a broker has the store open.
    """
    if not disk.exists(f"{root}/lock"):  # no broker was ever here: create no lock file
        yield
        return
    lock = disk.lock(f"{root}/lock")
    try:
        yield
    finally:
        lock.release()


def load_configuration(disk: Disk, path: str, surroundings: Surroundings) -> BrokerConfiguration:
    """
    Read a broker's properties file.

    :raises ConfigurationError: the file cannot be read.
    :raises ChangeRefused: the broker belongs to a DLedger group.
    """
    try:
        text = properties.decode(disk.read_bytes(path))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    configuration: BrokerConfiguration = load_broker(text, surroundings, name=path).configuration
    if is_dledger(configuration):
        raise ChangeRefused(
            f"{path} is of a member of a DLedger group, which mends itself: empty what is damaged,"
            " and it fetches that from the leader (docs/operations.md)"
        )
    return configuration
