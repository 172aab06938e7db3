"""One name server's whole configuration: what one properties file feeds."""

from dataclasses import dataclass, field

from rmq_ha.base.config.controller import ControllerConfig
from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.netty import NettyServerConfig


@dataclass(slots=True)
class NamesrvConfiguration:
    """
    The objects that a name server properties file feeds.

    Spec: store.md, sections 13.5 and 13.7.

    :ivar controller: counts with `enableControllerInNamesrv` only.
    :ivar plugin_options: the `tls.` settings.
    """

    namesrv: NamesrvConfig = field(default_factory=NamesrvConfig)
    server: NettyServerConfig = field(default_factory=NettyServerConfig)
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    plugin_options: dict[str, str] = field(default_factory=dict)
