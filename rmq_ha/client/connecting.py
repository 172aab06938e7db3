"""`connect`: makes a client for applications with a Twisted reactor."""

from typing import Any, Unpack

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.host.real import make_host
from rmq_ha.base.host.std_logging import begin_logging
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.rules.options import ClientOptions, client_settings
from rmq_ha.client.rules.settings import ClientConfig


def connect(
    reactor: Any, settings: ClientConfig | str = "", **options: Unpack[ClientOptions]
) -> ClientInstance:
    """
    Make a client for producers and consumers, which start and stop it.

    :param reactor: any reactor of Twisted, also its asyncio reactor.
    :param settings: settings, or only the name servers as `host:port;host:port`; if empty, those of
        the environment variable NAMESRV_ADDR.
    :param options: settings of `ClientConfig`; they override those of `settings`.
    :raises ConfigurationError: there is no reactor, no name server is set, or a `tls.*` key is not
        valid.
    """
    if not hasattr(reactor, "callWhenRunning"):
        raise ConfigurationError(
            f"rmq_ha.client.connect takes Twisted's reactor first, not {type(reactor).__name__}: "
            "connect(reactor, 'host:port'). With asyncio take rmq_ha.client.aio.connect, in "
            "threads rmq_ha.client.BlockingClient"
        )
    settings = client_settings(settings, options)
    reactor.callWhenRunning(begin_logging)  # twistd, or the application, has begun by then
    return ClientInstance(make_host(reactor), settings)
