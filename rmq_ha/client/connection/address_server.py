"""Look-up of name servers over HTTP, as with Java's `rocketmq.namesrv.domain`.

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
        """Return an endpoint on the client's own network, which tests may simulate."""
        return self._network.client(uri.host.decode(), uri.port, self._seconds)


async def look_up(
    clock: IReactorTime, network: Network, url: str, timeout_ms: int
) -> tuple[str, ...]:
    """
    Ask an address server for the name servers' current addresses.

    :raises NoNameServer: the server does not answer, or its answer is no list of addresses.
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
