"""`twistd rmqha`: a broker."""

from typing import Any

from rmq_ha.app.make import make_service
from rmq_ha.app.options import BrokerOptions as Options
from rmq_ha.app.service import ServerService
from rmq_ha.config.load import load_broker

__all__ = ["Options", "makeService"]


def makeService(options: Options) -> ServerService:
    """As `make_service`."""
    return make_service("rmqha", options, load_broker, _make_server)


def _make_server(host: Any, configuration: Any) -> Any:
    from rmq_ha.app.broker_server import BrokerServer

    return BrokerServer(host, configuration)
