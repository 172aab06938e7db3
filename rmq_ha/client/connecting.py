"""A client of this process: for applications that have a reactor and name servers, no more."""

from typing import Any, Unpack

from rmq_ha.base.host.real import make_host
from rmq_ha.base.host.std_logging import begin_logging
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.rules.options import ClientOptions, client_settings
from rmq_ha.client.rules.settings import ClientConfig


def connect(
    reactor: Any, settings: ClientConfig | str = "", **options: Unpack[ClientOptions]
) -> ClientInstance:
    """
    What producers and consumers are made with; they start and stop it.

    :param reactor: any of Twisted's, asyncio's too.
    :param settings: or only the name servers, `host:port`, `;` between them; the environment's
        NAMESRV_ADDR when empty.
    :param options: settings of `ClientConfig`, over those of `settings`.
    :raises ConfigurationError: there is no name server, or a `tls.*` key does not fit.
    """
    settings = client_settings(settings, options)
    reactor.callWhenRunning(begin_logging)  # twistd, or the application, has begun by then
    return ClientInstance(make_host(reactor), settings)
