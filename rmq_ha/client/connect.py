"""The short way to a client in a reactor that runs."""

from typing import Any

from rmq_ha.client.instance import ClientInstance
from rmq_ha.client.settings import ClientConfig
from rmq_ha.host.real import make_host


def connect(reactor: Any, settings: ClientConfig | str = "") -> ClientInstance:
    """
    A client for producers and consumers to share; they start it, the last one that stops stops it.

    :param reactor: any; nobody else's is touched.
    :param settings: or only the name servers, `host:port`, `;` between them; NAMESRV_ADDR counts
        when empty.
    :raises ConfigurationError: there is no name server, or a `tls.*` key does not fit.
    """
    if isinstance(settings, str):
        settings = ClientConfig(namesrv_addr=settings)
    return ClientInstance(make_host(reactor), settings)
