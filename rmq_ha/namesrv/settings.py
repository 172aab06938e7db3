"""NamesrvSettings: the name server's configuration while it runs.

Spec: remoting.md, sections 2.3, 7.9 and 9.6.
"""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.config import properties
from rmq_ha.config.fields import fields_by_key
from rmq_ha.config.from_afar import refusal
from rmq_ha.config.namesrv import NamesrvConfig
from rmq_ha.config.netty import NettyServerConfig
from rmq_ha.config.settings import render_objects
from rmq_ha.config.values import parse_value
from rmq_ha.errors import ConfigurationError, RequestRejected
from rmq_ha.model.printable import one_line
from rmq_ha.properties_file import PropertiesFile
from rmq_ha.seams import Disk, Worker
from rmq_ha.wire.codes import ResponseCode


class NamesrvSettings:
    """
    Shows and changes both configuration objects, and keeps their file up to date.

    :ivar file: that holds the settings.
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
        self._targets = (namesrv_config, server_config)

    def render(self) -> str:
        """`key=value` lines of everything."""
        return "".join(f"{line}\n" for line in render_objects(self._targets))

    def update(self, text: str) -> "Deferred[bool]":
        """
        Change what a properties text names; unknown keys are ignored.

        :returns: fires with whether the file was written; never fails.
        :raises ConfigurationError: the text is no properties text, or a value does not fit;
            nothing was changed.
        :raises RequestRejected: it names what must not be changed from afar.
        """
        texts = {item.key: item.value for item in properties.parse(text)}
        refused = refusal(list(texts))
        if refused is not None:
            raise RequestRejected(ResponseCode.NO_PERMISSION, refused)
        values: list[tuple[Any, str, Any]] = []
        changes: dict[str, str] = {}
        for target in self._targets:
            for key, field in fields_by_key(type(target)).items():
                if key in texts:
                    try:
                        value = parse_value(field, texts[key])
                    except ValueError as error:
                        raise ConfigurationError(f"{key}={one_line(texts[key])}: {error}") from None
                    values.append((target, field.name, value))
                    changes[key] = texts[key].strip()
        for target, name, value in values:
            setattr(target, name, value)
        self.log.info("configuration changed: {changes}", changes=changes)
        return self.file.change(changes)
