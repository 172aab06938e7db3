"""The errors that plugins and applications raise and catch; `rmq_ha.base.errors` has them all."""

from rmq_ha.base.errors import (
    AccessRefused,
    CannotDecide,
    ConfigurationError,
    PluginNotFound,
    RemotingConnectError,
    RemotingError,
    RemotingTimeout,
    RequestRejected,
    RmqHaError,
    StoreError,
    WrongUsage,
)

__all__ = [
    "AccessRefused",
    "CannotDecide",
    "ConfigurationError",
    "PluginNotFound",
    "RemotingConnectError",
    "RemotingError",
    "RemotingTimeout",
    "RequestRejected",
    "RmqHaError",
    "StoreError",
    "WrongUsage",
]
