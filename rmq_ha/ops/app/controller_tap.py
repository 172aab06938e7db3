"""`twistd rmqcontroller`: a controller."""

from typing import Any

from rmq_ha.base.config.load_controller import load_controller
from rmq_ha.ops.app.make import make_service
from rmq_ha.ops.app.options import ControllerOptions as Options
from rmq_ha.ops.app.service import ServerService

__all__ = ["Options", "makeService"]


def makeService(options: Options) -> ServerService:
    return make_service("rmqcontroller", options, load_controller, _make_server)


def _make_server(host: Any, configuration: Any) -> Any:
    from rmq_ha.ops.app.controller_server import ControllerServer

    return ControllerServer(host, configuration)
