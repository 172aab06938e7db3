"""`twistd rmqnamesrv`: a name server."""

from typing import Any

from rmq_ha.base.config.load import load_namesrv
from rmq_ha.ops.app.make import make_service
from rmq_ha.ops.app.options import NamesrvOptions as Options
from rmq_ha.ops.app.service import ServerService

__all__ = ["Options", "makeService"]


def makeService(options: Options) -> ServerService:
    return make_service("rmqnamesrv", options, load_namesrv, _make_server)


def _make_server(host: Any, configuration: Any) -> Any:
    from rmq_ha.ops.app.namesrv_server import NamesrvServer

    return NamesrvServer(host, configuration)
