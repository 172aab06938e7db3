"""NamesrvSettings: the name server's configuration while it runs.

Spec: remoting.md, sections 2.3, 7.9 and 9.6.
"""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.base.config import properties
from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.config.remote_change import fixed_refusal, refusal
from rmq_ha.base.config.settings import change, render_objects
from rmq_ha.base.config.unserved_keys import Section, UnservedValues
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.printable import NamedValues
from rmq_ha.base.properties_file import PropertiesFile
from rmq_ha.base.seams import Disk, Worker
from rmq_ha.base.wire.codes import ResponseCode


class NamesrvSettings:
    """
    Shows and changes the settings of the name server and of its network, and keeps their file up to
    date.

    :ivar file: the properties file.
    :ivar unserved: the values that the file gives to keys without effect; they are only shown.
    """

    log = Logger()

    def __init__(
        self,
        disk: Disk,
        worker: Worker,
        namesrv_config: NamesrvConfig,
        server_config: NettyServerConfig,
    ) -> None:
        self.file = PropertiesFile(disk, worker, namesrv_config.config_store_path)
        self.unserved = UnservedValues(Section.NAMESRV, Section.SERVER)
        self._configs = (namesrv_config, server_config)

    @property
    def _targets(self) -> tuple[Any, ...]:
        return (*self._configs, self.unserved)

    def render(self) -> str:
        """Return `key=value` lines of all keys."""
        return "".join(f"{line}\n" for line in render_objects(self._targets))

    def update(self, text: str) -> "Deferred[bool]":
        """
        Change the keys in a properties text; unknown keys are ignored.

        :returns: fires with whether the file was written; never fails.
        :raises ConfigurationError: the text is no properties text, or a value does not fit;
            nothing was changed.
        :raises RequestRejected: a request may not change one of the keys, or the name server
            reads the key at its start only.
        """
        texts = {item.key: item.value for item in properties.parse(text)}
        refused = refusal(texts)
        if refused is not None:
            raise RequestRejected(ResponseCode.NO_PERMISSION, refused)
        fixed = fixed_refusal(self._targets, texts, "the name server")
        if fixed is not None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, fixed)
        changes = change(self._targets, texts)
        self.log.info("configuration changed{changes}", changes=NamedValues(changes))
        return self.file.change(changes)
