"""The whole configuration of one name server, as one properties file gives it."""

from dataclasses import dataclass, field
from typing import Any

from rmq_ha.base.config.controller import ControllerConfig
from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.config.unserved_keys import Section, UnservedValues


@dataclass(slots=True)
class NamesrvConfiguration:
    """
    The objects that a name server's properties file fills.

    Spec: store.md, sections 13.5 and 13.7.

    :ivar controller: the controller in this process; read only with `enableControllerInNamesrv`.
    :ivar unserved: keys without effect in rmq-ha.
    :ivar plugin_options: the `tls.` settings.
    """

    namesrv: NamesrvConfig = field(default_factory=NamesrvConfig)
    server: NettyServerConfig = field(default_factory=NettyServerConfig)
    unserved: UnservedValues = field(
        default_factory=lambda: UnservedValues(Section.NAMESRV, Section.SERVER)
    )
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    plugin_options: dict[str, str] = field(default_factory=dict)

    @property
    def own_objects(self) -> tuple[Any, ...]:
        """The objects that hold a name server's own keys, in the order in which they are shown."""
        return (self.namesrv, self.server)

    @property
    def runs_controller(self) -> bool:
        """Whether the name server in this process runs a controller."""
        return self.namesrv.enable_controller_in_namesrv
