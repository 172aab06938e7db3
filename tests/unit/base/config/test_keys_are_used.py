"""No key is taken and then ignored without a word."""

import re
from dataclasses import fields
from pathlib import Path

import rmq_ha
from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.config.controller import ControllerConfig
from rmq_ha.base.config.limits import NO_EFFECT, NOT_IMPLEMENTED, REFUSED
from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.netty import NettyClientConfig, NettyServerConfig
from rmq_ha.base.config.ours import RmqHaConfig
from rmq_ha.base.config.store import MessageStoreConfig

CLASSES = (
    BrokerConfig,
    MessageStoreConfig,
    NettyServerConfig,
    NettyClientConfig,
    RmqHaConfig,
    NamesrvConfig,
    ControllerConfig,
)


def test_every_key_is_read_or_listed() -> None:
    """A setting that nobody reads must be in limits.py, so that its user is told."""
    package = Path(rmq_ha.__file__).parent
    sources = [path for path in package.rglob("*.py") if path.parent.name != "config"]
    sources += [
        package / "base" / "config" / name
        for name in ("journal.py", "load.py", "load_controller.py")
    ]
    read = {name for path in sources for name in re.findall(r"\.(\w+)", path.read_text())}
    listed = NO_EFFECT | NOT_IMPLEMENTED.keys() | REFUSED.keys()
    ignored = [
        item.metadata["key"]
        for each in CLASSES
        for item in fields(each)
        if item.name not in read and item.metadata["key"] not in listed
    ]
    assert ignored == []
