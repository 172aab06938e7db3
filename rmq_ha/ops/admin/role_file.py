"""RoleFile: the properties file that decides a broker's role at its next start."""

from typing import NamedTuple

import click

from rmq_ha.base.config import properties
from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.dledger import is_dledger
from rmq_ha.base.config.key_readers import readers
from rmq_ha.base.config.load import load_broker
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.host.surroundings import real_surroundings
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.seams import Disk


class LineChange(NamedTuple):
    """
    A changed line of the file.

    :ivar before: the value before; None: the key was not in the file.
    """

    key: str
    before: str | None
    after: str


class RoleFile:
    """
    Reads a broker's properties file as the broker does, and changes the role in it.

    :param path: absolute path of the file itself, not of a link to it.
    """

    def __init__(self, disk: Disk, path: str, surroundings: Surroundings) -> None:
        """
        :raises ConfigurationError: the file cannot be read, or its broker belongs to a DLedger
            group.
        """
        self.path = path
        self._disk = disk
        self._surroundings = surroundings
        try:
            self._text = properties.decode(disk.read_bytes(path))
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror}") from None
        self.configuration: BrokerConfiguration = self._load(self._text)
        self._must_be_of_a_broker()
        if is_dledger(self.configuration):
            raise ConfigurationError(
                f"{path}: this broker belongs to a DLedger group, which elects its master: use"
                " rmqha-admin dledger transfer"
            )

    def _must_be_of_a_broker(self) -> None:
        """
        Check that the file has no keys that only name servers or controllers read.

        :raises ConfigurationError: the file has such a key.
        """
        if self.configuration.ours.enable_controller_in_namesrv:
            return  # the file has keys of a controller as well as its own
        keys = [item.key for item in properties.parse(self._text)]
        of_others = [key for key in keys if (who := readers(key)) and "rmqha-broker" not in who]
        if of_others:
            raise ConfigurationError(
                f"{self.path}: {of_others[0]} is a key of {' and '.join(readers(of_others[0]))}: "
                "name the properties file of the broker"
            )

    @property
    def broker_name(self) -> str:
        return self.configuration.broker.broker_name or ""

    @property
    def address(self) -> str:
        """Address of the broker, as name servers know it."""
        broker, server = self.configuration.broker, self.configuration.server
        return f"{broker.broker_ip1}:{server.listen_port}"

    @property
    def role(self) -> BrokerRole:
        return self.configuration.store.broker_role

    def changes(self, role: BrokerRole, broker_id: int) -> list[LineChange]:
        """
        Return the lines that must change for this role.

        :raises ConfigurationError: the broker would not start with the changed file.
        """
        settings = {"brokerRole": role.value, "brokerId": str(broker_id)}
        known = {item.key: item.value.strip() for item in properties.parse(self._text)}
        if known.get("haMasterAddress") and self.configuration.broker.namesrv_addr:
            settings["haMasterAddress"] = ""  # old pair's; name servers know the new one
        changes = [
            LineChange(key, known.get(key), value)
            for key, value in settings.items()
            if known.get(key) != value
        ]
        self._load(self._text_with(changes))
        return changes

    def write(self, changes: list[LineChange]) -> None:
        """
        Write the changes; the old content is kept as `.bak`.

        :raises ConfigurationError: the disk refuses.
        """
        if not changes:
            return
        data = self._text_with(changes).encode("iso-8859-1")
        try:
            self._disk.replace(self.path, data, backup=True)
        except OSError as error:
            raise ConfigurationError(f"{self.path}: {error.strerror}; nothing changed") from None

    def _text_with(self, changes: list[LineChange]) -> str:
        return properties.with_changes(self._text, {item.key: item.after for item in changes})

    def _load(self, text: str) -> BrokerConfiguration:
        return load_broker(text, self._surroundings, name=self.path).configuration


def must_be_a_brokers(path: str) -> None:
    """
    Check an option of the command line that names a broker's properties file.

    :raises click.UsageError: the file cannot be read, is not valid, belongs to another server, or
        its broker belongs to a DLedger group.
    """
    try:
        RoleFile(RealDisk(), path, real_surroundings("."))
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None
