"""Name servers that are asked for over HTTP, as Java's `rocketmq.namesrv.domain` says.

Spec: remoting.md, section 11.6.
"""

from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.web.client import Agent, readBody
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from rmq_ha.base.seams import Network
from rmq_ha.client.rules.errors import NoNameServer
from rmq_ha.client.rules.settings import name_servers_in


@implementer(IAgentEndpointFactory)
class _Endpoints:
    def __init__(self, network: Network, seconds: float) -> None:
        self._network = network
        self._seconds = seconds

    def endpointForURI(self, uri: Any) -> Any:
        """On whatever network the client stands."""
        return self._network.client(uri.host.decode(), uri.port, self._seconds)


async def look_up(
    clock: IReactorTime, network: Network, url: str, timeout_ms: int
) -> tuple[str, ...]:
    """
    The addresses that a server of addresses has at the moment.

    :raises NoNameServer: it does not answer, or with something else.
    """
    seconds = timeout_ms / 1000
    factory = Agent.usingEndpointFactory
    agent = factory(clock, _Endpoints(network, seconds))  # type: ignore[no-untyped-call]
    try:
        response = await agent.request(b"GET", url.encode()).addTimeout(seconds, clock)
        body = await readBody(response).addTimeout(seconds, clock)
    except Exception as error:
        raise NoNameServer(f"{url} does not say where name servers are: {error!r}") from None
    return name_servers_in(url, response.code, body)
