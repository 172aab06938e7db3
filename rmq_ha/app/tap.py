"""`twistd rmqha`: a broker."""

from rmq_ha.app.check import finish_check
from rmq_ha.app.log import quiet_observer
from rmq_ha.app.options import BrokerOptions as Options
from rmq_ha.app.process import ProcessEnd
from rmq_ha.app.service import ServerService
from rmq_ha.config.load import load_broker
from rmq_ha.errors import ConfigurationError

__all__ = ["Options", "makeService"]


def makeService(options: Options) -> ServerService:
    """
    Read the configuration and build the service.

    :raises SystemExit: the configuration does not fit (1), or `--check` was asked for.
    """
    try:
        configuration, notices = load_broker(
            options.text(),
            options.surroundings(),
            name=options["config"] or "",
            overrides=options.overrides,
        )
        if options["check"]:
            finish_check(configuration, notices)
    except ConfigurationError as error:
        raise SystemExit(f"rmqha: {error}") from None
    from twisted.internet import reactor

    from rmq_ha.app.broker_server import BrokerServer
    from rmq_ha.host.real import make_host

    server = BrokerServer(make_host(reactor), configuration)
    return ServerService(
        reactor,
        server,
        ProcessEnd(reactor),
        notices,
        options.wants_ready,
        quiet_observer(options.parent),
    )
