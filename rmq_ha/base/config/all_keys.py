"""Every key that this version knows, of all servers."""

from collections.abc import Mapping

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.config.controller import ControllerConfig
from rmq_ha.base.config.controller_mode_keys import ControllerModeConfig
from rmq_ha.base.config.fields import Key, keys_of
from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.netty import NettyClientConfig, NettyServerConfig
from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.config.tls_keys import TLS_KEYS
from rmq_ha.base.config.unserved_keys import UNSERVED

CONFIG_CLASSES = (
    BrokerConfig,
    MessageStoreConfig,
    NettyServerConfig,
    NettyClientConfig,
    ControllerModeConfig,
    RmqHaConfig,
    NamesrvConfig,
    ControllerConfig,
)
"""
The classes that declare keys. Where two classes declare one key, the rows may differ in `meaning`,
`since` and `needs` only.
"""

ALL_KEYS: Mapping[str, Key] = {
    **UNSERVED,
    **TLS_KEYS,
    **{name: row for config_class in CONFIG_CLASSES for name, row in keys_of(config_class).items()},
}
"""Every key that a server knows, by its name; where two classes declare one, the later row."""
