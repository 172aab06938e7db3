"""`twistd rmqha`: a broker."""

from typing import Any

from rmq_ha.base.config.load import load_broker
from rmq_ha.ops.app.make import make_service
from rmq_ha.ops.app.options import BrokerOptions as Options
from rmq_ha.ops.app.service import ServerService

__all__ = ["Options", "makeService"]


def makeService(options: Options) -> ServerService:
    return make_service("rmqha", options, load_broker, _make_server)


def _make_server(host: Any, configuration: Any) -> Any:
    from rmq_ha.ops.app.broker_server import BrokerServer

    return BrokerServer(host, configuration)
