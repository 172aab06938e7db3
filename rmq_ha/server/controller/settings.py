"""
A controller's configuration: makes the settings of its Raft group from it, and shows and changes it
for requests.

Spec: controller.md, section 2.3; requests 1009 and 1010 of section 5.1.
"""

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.base.config import properties
from rmq_ha.base.config.controller import ControllerConfig
from rmq_ha.base.config.dledger_settings import DLedgerSettings, parse_peers
from rmq_ha.base.config.fields import keys_of
from rmq_ha.base.config.settings import change, render_objects
from rmq_ha.base.errors import ConfigurationError, RequestRejected
from rmq_ha.base.model.printable import NamedValues
from rmq_ha.base.properties_file import PropertiesFile
from rmq_ha.base.seams import Disk, Worker
from rmq_ha.base.wire.codes import ResponseCode


def group_settings(config: ControllerConfig) -> DLedgerSettings:
    """
    Return the settings of the consensus core.

    :raises ConfigurationError: `controllerDLegerPeers` cannot be read, or has no entry for this
        controller.
    """
    try:
        return DLedgerSettings(
            group=config.controller_dleger_group,
            self_id=config.controller_dleger_self_id,
            peers=parse_peers(config.controller_dleger_peers),
            sync_before_ack=True,
        )
    except ConfigurationError as error:
        text = str(error).replace("dLeger", "controllerDLeger")
        raise ConfigurationError(f"{text}; for one controller: n0-<its address>:9878") from None


class ControllerSettings:
    """
    Shows the configuration, and changes the keys that can be changed.

    :ivar file: the properties file.
    """

    log = Logger()

    def __init__(self, disk: Disk, worker: Worker, config: ControllerConfig) -> None:
        self.file = PropertiesFile(disk, worker, config.config_store_path)
        self._config = config

    def render(self) -> list[str]:
        """Return a `key=value` line for each key of the configuration."""
        return render_objects((self._config,))

    def update(self, text: str) -> "Deferred[bool]":
        """
        Change the keys in a properties text; unknown keys are ignored, as in RocketMQ.

        :returns: fires with whether the file was written; never fails.
        :raises ConfigurationError: a value does not fit; nothing was changed.
        :raises RequestRejected: a key can only be changed in the file.
        """
        texts = {item.key: item.value for item in properties.parse(text)}
        rows = keys_of(ControllerConfig)
        fixed = [key for key in sorted(texts) if key in rows and not rows[key].is_mutable]
        if fixed:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"{', '.join(fixed)} can only be changed in the properties file of this "
                "controller, with a restart; nothing was changed",
            )
        changes = change((self._config,), texts)
        self.log.info("configuration changed{changes}", changes=NamedValues(changes))
        return self.file.change(changes)
