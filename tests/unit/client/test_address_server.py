"""Name servers that are looked up over HTTP, on simulated machines and on a real socket."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from twisted.internet.protocol import Factory, Protocol

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.lookups import cluster_info
from rmq_ha.client.rules.errors import NoNameServer
from rmq_ha.client.rules.messages import Message, SendStatus
from rmq_ha.client.rules.settings import ADDRESSES_SECONDS, ClientConfig
from rmq_ha.client.send.producer import Producer
from tests.unit.client.sim_cluster import SimCluster

pytestmark = pytest.mark.filterwarnings("ignore:Using readBody with a transport")
"""Simulated transports know no abortConnection, for which there is nothing to wait there."""


class Page:
    """A server with one page; what it says may change."""

    def __init__(self, cluster: SimCluster, text: str, status: str = "200 OK") -> None:
        self.text, self.status = text, status
        self.asked: list[str] = []
        self.host = cluster.world.add("pages")
        page = self

        class Answer(Protocol):
            def dataReceived(self, data: bytes) -> None:
                page.asked.append(data.split(b" ")[1].decode())
                body = page.text.encode()
                head = f"HTTP/1.1 {page.status}\r\nContent-Length: {len(body)}\r\n\r\n"
                self.transport.write(head.encode() + body)  # type: ignore[union-attr]
                self.transport.loseConnection()  # type: ignore[union-attr]

        factory = Factory.forProtocol(Answer)
        cluster.wait(self.host.seams.network.server(8080).listen(factory))


def producer(cluster: SimCluster, page: Page, **settings: Any) -> Producer:
    made = Producer(cluster.client(namesrv_addr="", namesrv_domain=page.host.ip, **settings))
    cluster.wait(made.start())
    return made


def test_name_servers_are_looked_up_and_looked_up_again() -> None:
    """At the first request; two minutes later the answer may be another one."""
    cluster = SimCluster("a")
    page = Page(cluster, f"{cluster.namesrv.address}\nnot this line\n")
    made = producer(cluster, page)
    assert cluster.wait(made.send(Message("T", b"x"))).send_status is SendStatus.SEND_OK
    assert page.asked == ["/rocketmq/nsaddr"]
    known = cluster.wait(Asker(made.instance).run(cluster_info()))
    assert "a" in known.brokers
    page.text = "10.9.9.9:9876"
    cluster.run(ADDRESSES_SECONDS + 1)
    assert len(page.asked) == 2
    assert made.instance.name_servers.addresses == ("10.9.9.9:9876",)
    page.status = "500 Broken"
    cluster.run(ADDRESSES_SECONDS + 1)
    assert len(page.asked) == 3
    assert made.instance.name_servers.addresses == ("10.9.9.9:9876",), "what was known stays"


def test_units_have_a_list_of_their_own() -> None:
    cluster = SimCluster("a")
    page = Page(cluster, cluster.namesrv.address)
    settings = {"unit_name": "u1", "namesrv_domain_subgroup": "mine"}
    cluster.wait(producer(cluster, page, **settings).send(Message("T", b"x")))
    assert page.asked == ["/rocketmq/mine-u1?nofix=1"]


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("", "200 OK", "nothing"),
        ("a:1", "404 Not Found", "HTTP status 404"),
        ("<html>", "200 OK", "not host:port"),
    ],
)
def test_an_answer_that_is_none(text: str, status: str, said: str) -> None:
    """The error names the page, and who answers later is asked again."""
    cluster = SimCluster("a")
    page = Page(cluster, text, status)
    made = producer(cluster, page)
    with pytest.raises(NoNameServer, match=f"rocketmq/nsaddr does not say .*{said}"):
        cluster.wait(made.send(Message("T", b"x")))
    page.text, page.status = cluster.namesrv.address, "200 OK"
    assert cluster.wait(made.send(Message("T", b"x"))).send_status is SendStatus.SEND_OK


def test_a_server_of_addresses_that_is_away_is_named() -> None:
    cluster = SimCluster("a")
    page = Page(cluster, cluster.namesrv.address)
    made = producer(cluster, page)
    page.host.crash()
    with pytest.raises(NoNameServer, match="rocketmq/nsaddr does not say where name servers are"):
        cluster.wait(made.send(Message("T", b"x")))


@pytest.mark.parametrize("domain", ["http://a", "a/b", "a b"])
def test_a_domain_that_is_none(domain: str) -> None:
    with pytest.raises(ConfigurationError, match="is not host or host:port"):
        SimCluster().client(namesrv_addr="", namesrv_domain=domain)


@contextmanager
def served(text: str) -> Iterator[tuple[str, list[str]]]:
    """On a real socket: address, and what was asked for."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200 if text else 404)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("text", "said"),
    [("127.0.0.1:1", "cannot connect|127.0.0.1:1: "), ("", "HTTP status 404")],
)
def test_a_blocking_client_looks_them_up_too(text: str, said: str) -> None:
    """Once in two minutes; nobody answers where the page says."""
    with served(text) as (address, asked):
        settings = ClientConfig(namesrv_domain=address)
        with BlockingClient(settings) as client:
            for _ in range(2):
                with pytest.raises(NoNameServer, match=said):
                    client.cluster()
    assert asked == ["/rocketmq/nsaddr"] * (1 if text else 2)


def test_a_list_of_name_servers_wins() -> None:
    """As in Java: the page is for who has none."""
    with served("") as (address, asked):
        settings = ClientConfig(namesrv_addr="127.0.0.1:1", namesrv_domain=address)
        with BlockingClient(settings) as client, pytest.raises(NoNameServer):
            client.cluster()
    assert asked == []
