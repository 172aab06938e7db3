"""`twistd rmqnamesrv`: a name server."""

from rmq_ha.app.check import finish_check
from rmq_ha.app.log import quiet_observer
from rmq_ha.app.options import NamesrvOptions as Options
from rmq_ha.app.process import ProcessEnd
from rmq_ha.app.service import ServerService
from rmq_ha.config.load import load_namesrv
from rmq_ha.errors import ConfigurationError

__all__ = ["Options", "makeService"]


def makeService(options: Options) -> ServerService:
    """
    Read the configuration and build the service.

    :raises SystemExit: the configuration does not fit (1), or `--check` was asked for.
    """
    try:
        configuration, notices = load_namesrv(
            options.text(),
            options.surroundings(),
            name=options["config"] or "",
            overrides=options.overrides,
        )
        if options["check"]:
            finish_check(configuration, notices)
    except ConfigurationError as error:
        raise SystemExit(f"rmqnamesrv: {error}") from None
    from twisted.internet import reactor

    from rmq_ha.app.namesrv_server import NamesrvServer
    from rmq_ha.host.real import make_host

    server = NamesrvServer(make_host(reactor), configuration)
    return ServerService(
        reactor,
        server,
        ProcessEnd(reactor),
        notices,
        options.wants_ready,
        quiet_observer(options.parent),
    )
