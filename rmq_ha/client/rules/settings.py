"""Settings of clients; names and defaults are those of the Java client, in snake_case.

Spec: remoting.md, sections 11.1, 11.2 and 11.6.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from ssl import SSLContext

from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.model.process import Process
from rmq_ha.base.model.topics import DEFAULT_TOPIC
from rmq_ha.base.remoting.signing import Credentials, RequestSigner, SignedTimes
from rmq_ha.base.tls.std_session import check_context
from rmq_ha.client.rules.compression import Compression, compression_of
from rmq_ha.client.rules.errors import NoNameServer
from rmq_ha.client.rules.old_spellings import with_old_spellings

DEFAULT_NAMESRV_PORT = 9876
ADDRESS_SERVER_PORT = 8080
ADDRESSES_SECONDS = 120.0
"""How long addresses of name servers count that were looked up, as in Java."""
_HTTP_OK = 200
_NO_HOST = re.compile(r"[^\w.:\[\]-]")


@with_old_spellings(
    poll_name_server_interval="poll_name_server_interval_ms",
    heartbeat_broker_interval="heartbeat_broker_interval_ms",
    persist_consumer_offset_interval="persist_consumer_offset_interval_ms",
    pull_time_delay_mills_when_exception="pull_time_delay_when_exception_ms",
    mq_client_api_timeout="mq_client_api_timeout_ms",
    connect_timeout_millis="connect_timeout_ms",
    route_idle_millis="route_idle_ms",
)
@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """
    What all producers and consumers of one `ClientInstance` share.

    :ivar namesrv_addr: `host:port` of name servers, `;` between them; the environment's
        NAMESRV_ADDR when empty.
    :ivar namesrv_domain: `host` or `host:port` of a server that says over HTTP where the name
        servers are, for who has no list of them; asked again every two minutes.
    :ivar namesrv_domain_subgroup: which list, as Java's `rocketmq.namesrv.domain.subgroup`.
    :ivar client_ip: part of the client id; this machine's address when empty.
    :ivar instance_name: part of the client id; unique for the process when `DEFAULT`.
    :ivar namespace: put before topics and groups, as `<namespace>%`.
    :ivar credentials: for brokers with ACL.
    :ivar sign_time: sign code, time and number of each request, too, for brokers of ours; others
        do not notice.
    :ivar sign_only_over_tls: with credentials, a client is not made that would sign over plain TCP,
        or for servers that prove nothing: whoever listens there can send its requests again.
    :ivar use_tls: connect with TLS; `tls` says how.
    :ivar tls: RocketMQ's `tls.*` keys. With `tls.client.trustCertPath` servers have to prove that
        they are whom we connect to; without it a warning says that nobody checks. Unlike in
        RocketMQ `tls.test.mode.enable` is false, or these keys would have no effect.
    :ivar ssl_context: instead of `use_tls` and `tls`: connect with TLS by these rules. It cannot be
        pickled.
    :ivar vip_channel_enabled: send to the brokers' port minus 2.
    :ivar poll_name_server_interval_ms: the time between two looks at the routes.
    :ivar heartbeat_broker_interval_ms: the time between two heartbeats.
    :ivar persist_consumer_offset_interval_ms: the time between two writes of consumers' offsets.
    :ivar pull_time_delay_when_exception_ms: how long a pull waits after an error.
    :ivar mq_client_api_timeout_ms: for calls that are neither sends nor pulls.
    :ivar connect_timeout_ms: for one attempt to connect.
    :ivar route_idle_ms: a route that nobody used for so long is forgotten.
    :ivar process: None for the one we are in.
    """

    namesrv_addr: str = ""
    namesrv_domain: str = ""
    namesrv_domain_subgroup: str = "nsaddr"
    client_ip: str = ""
    instance_name: str = "DEFAULT"
    unit_name: str = ""
    unit_mode: bool = False
    namespace: str = ""
    credentials: Credentials | None = None
    sign_time: bool = True
    sign_only_over_tls: bool = False
    use_tls: bool = False
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)  # a password may be in it
    ssl_context: SSLContext | None = field(default=None, repr=False)
    vip_channel_enabled: bool = False
    poll_name_server_interval_ms: int = 30_000
    heartbeat_broker_interval_ms: int = 30_000
    persist_consumer_offset_interval_ms: int = 5_000
    pull_time_delay_when_exception_ms: int = 1_000
    mq_client_api_timeout_ms: int = 3_000
    connect_timeout_ms: int = 3_000
    route_idle_ms: int = 600_000
    process: Process | None = None

    def servers(self, environ: Mapping[str, str]) -> list[str]:
        """
        Addresses of name servers; none when they are to be looked up.

        :raises ConfigurationError: there are none, and nobody to ask for them; or one is none.
        """
        known = self.namesrv_addr or environ.get("NAMESRV_ADDR", "")
        return [] if self.namesrv_domain and not known else name_servers(known)

    def address_server(self) -> str:
        """
        Who is asked for name servers, as Java asks.

        :raises ConfigurationError: `namesrv_domain` is no host.
        """
        domain = self.namesrv_domain
        if not domain or _NO_HOST.search(domain):
            raise ConfigurationError(
                f"namesrv_domain: {domain!r} is not host or host:port; the path is"
                " /rocketmq/<namesrv_domain_subgroup>"
            )
        place = domain if ":" in domain else f"{domain}:{ADDRESS_SERVER_PORT}"
        unit = f"-{self.unit_name}?nofix=1" if self.unit_name.strip() else ""
        return f"http://{place}/rocketmq/{self.namesrv_domain_subgroup}{unit}"

    def tls_options(self) -> dict[str, str]:
        """The `tls.*` keys with our defaults."""
        return {"tls.test.mode.enable": "false", **self.tls}

    def signer(self, now_ms: Callable[[], int], random: Random) -> RequestSigner | None:
        """Signs for the account, if there is one; each process needs one of its own."""
        if self.credentials is None:
            return None
        return RequestSigner(
            self.credentials, SignedTimes(now_ms, random) if self.sign_time else None
        )

    def context(self) -> SSLContext | None:
        """
        The application's own rules for TLS, if it has some.

        :raises ConfigurationError: there are others beside it, or it proves less than is wanted.
        """
        context = self.ssl_context
        if context is None:
            return None
        if self.tls or self.use_tls:
            raise ConfigurationError("either ssl_context, or use_tls and tls: not both")
        if not isinstance(context, SSLContext):
            raise ConfigurationError(
                f"ssl_context is an ssl.SSLContext, not {type(context).__name__}:"
                " ssl.create_default_context(cafile=...) makes one"
            )
        check_context(context, self.tls_demanded_by())
        return context

    def tls_demanded_by(self) -> str:
        """The setting that wants servers to prove who they are; empty: none does."""
        demands = self.sign_only_over_tls and self.credentials is not None
        return "sign_only_over_tls=True" if demands else ""

    def remoting(self) -> NettyClientConfig:
        """For the connections."""
        return NettyClientConfig(
            connect_timeout_millis=self.connect_timeout_ms, use_tls=self.use_tls
        )


@with_old_spellings(send_msg_timeout="send_msg_timeout_ms", stop_timeout="stop_timeout_ms")
@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """
    One producer's own settings.

    :ivar producer_group: of brokers with transactions, whom they ask about them.
    :ivar create_topic_key: the topic whose route a topic without one borrows.
    :ivar send_msg_timeout_ms: ms for one send with all its retries, as in RocketMQ: that is, for a
        round of attempts, from the first one on.
    :ivar delivery_timeout_ms: how long a send goes on with further rounds, with pauses between
        them, when what failed may pass: a broker that restarts. 0: as RocketMQ, one round.
    :ivar retry_backoff_ms: about how long the first pause is; the next ones are longer.
    :ivar retry_backoff_max_ms: no pause is longer.
    :ivar retry_chosen_queue: a send whose queue or selector is given goes on as well, with one
        attempt a round, always at the same queue. False: one attempt in all, as RocketMQ.
    :ivar chosen_queue_may_move: each further round asks a send's selector again, which then chooses
        among the queues that brokers serve. The order of a key is lost there.
    :ivar idempotent: a message is stored once, however often it has to be sent: only brokers that
        compare ids (ours, with `duplicateWindowMillis`) are sent to, and what may be at one is
        repeated there, or where that broker's name is taken over, and nowhere else.
    :ivar refuse_unserved_properties: do not send properties that only RocketMQ 5 acts on, such as
        TIMER_DELAY_SEC: brokers of 4.9 answer SEND_OK and deliver at once. False where the brokers
        are of 5, or where at once will do.
    :ivar compress_msg_body_over_howmuch: bodies of at least so many bytes are compressed.
    :ivar compress_type: ZLIB, which every consumer reads; LZ4 or ZSTD, which those of Java
        4.9.7 and 5.x and ours do (`rmq-ha[compression]`).
    :ivar compress_level: zlib's, 0 to 9; ZSTD's, 1 to 22; LZ4 has none.
    :ivar retry_times_when_send_failed: after the first attempt.
    :ivar retry_another_broker_when_not_store_ok: also when a message is stored, but not safely.
    :ivar max_message_size: bytes of a body; larger ones are not sent.
    :ivar max_batch_size: bytes of a batch's body; a larger one is split.
    :ivar send_latency_fault_enable: keep away from brokers that were slow or failed.
    :ivar max_in_flight: sends that wait for a broker's answer.
    :ivar max_in_flight_bytes: of their bodies.
    :ivar max_waiting: sends that wait for one of these, or for a broker to come back; 0: they are
        refused at once.
    :ivar stop_timeout_ms: ms that `stop()` gives sends in flight.
    """

    producer_group: str = "DEFAULT_PRODUCER"
    create_topic_key: str = DEFAULT_TOPIC
    default_topic_queue_nums: int = 4
    send_msg_timeout_ms: int = 3_000
    delivery_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    retry_chosen_queue: bool = True
    chosen_queue_may_move: bool = False
    idempotent: bool = False
    refuse_unserved_properties: bool = True
    compress_msg_body_over_howmuch: int = 4096
    compress_type: str = "ZLIB"
    compress_level: int = 5
    retry_times_when_send_failed: int = 2
    retry_another_broker_when_not_store_ok: bool = False
    max_message_size: int = 4 << 20
    max_batch_size: int = 4 << 20
    send_latency_fault_enable: bool = False
    max_in_flight: int = 1024
    max_in_flight_bytes: int = 64 << 20
    max_waiting: int = 65_536
    stop_timeout_ms: int = 5_000

    @property
    def compression(self) -> Compression:
        """
        How bodies are compressed.

        :raises ConfigurationError: there is no such way, or no such level.
        """
        return compression_of(self.compress_type, self.compress_level)

    def checked(self) -> "ProducerConfig":
        """
        Itself, if its numbers make sense.

        :raises ConfigurationError: one does not, or a library for `compress_type` is missing.
        """
        check_ranges(self, _PRODUCER_RANGES)
        if self.idempotent and not self.delivery_timeout_ms:
            raise ConfigurationError(
                "idempotent=True repeats a send in rounds, of which delivery_timeout_ms=0 allows"
                " one: set delivery_timeout_ms above 0"
            )
        if self.idempotent and self.retry_another_broker_when_not_store_ok:
            raise ConfigurationError(
                "idempotent=True stores a message at one broker, and"
                " retry_another_broker_when_not_store_ok=True at two: choose one of them"
            )
        self.compression  # noqa: B018 (it says what does not fit)
        return self


_MOST = 1 << 31
_PRODUCER_RANGES = {
    "default_topic_queue_nums": (1, 65535),
    "send_msg_timeout_ms": (1, _MOST),
    "delivery_timeout_ms": (0, _MOST),
    "retry_backoff_ms": (0, _MOST),
    "retry_backoff_max_ms": (0, _MOST),
    "compress_msg_body_over_howmuch": (0, _MOST),
    "retry_times_when_send_failed": (0, 65535),
    "max_message_size": (1, _MOST),
    "max_batch_size": (1, _MOST),
    "max_in_flight": (1, _MOST),
    "max_in_flight_bytes": (1, _MOST),
    "max_waiting": (0, _MOST),
    "stop_timeout_ms": (0, _MOST),
}


def check_ranges(config: object, ranges: Mapping[str, tuple[int, int]]) -> None:
    """
    Every number lies between two others.

    :raises ConfigurationError: one does not, or is no number.
    """
    for name, (least, most) in ranges.items():
        value = getattr(config, name)
        if not isinstance(value, int | float) or not least <= value <= most:
            raise ConfigurationError(f"{name} must be from {least} to {most}, not {value!r}")


def name_servers(text: str) -> list[str]:
    """
    Addresses in a list like `a:9876;b`; the port may be left out.

    :raises ConfigurationError: there is none, or one is no address.
    """
    addresses: list[str] = []
    for piece in text.split(";"):
        address = piece.strip().removeprefix("http://").rstrip("/")
        if not address:
            continue
        try:
            name_server = str(parse_host_port(address, DEFAULT_NAMESRV_PORT))
        except ValueError as error:
            raise ConfigurationError(
                f"namesrv_addr: {error}; between two of them is a semicolon"
            ) from None
        if name_server not in addresses:
            addresses.append(name_server)
    if not addresses:
        raise ConfigurationError(
            "no name server: set namesrv_addr, or the environment's NAMESRV_ADDR, to host:port"
        )
    return addresses


def name_servers_in(url: str, status: int, body: bytes) -> tuple[str, ...]:
    """
    What a server of addresses answered: its first line.

    :raises NoNameServer: it is no list of addresses.
    """
    lines = body.decode("utf-8", "replace").strip().splitlines()
    try:
        if status == _HTTP_OK and lines:
            return tuple(name_servers(lines[0]))
        said = f"HTTP status {status}" if status != _HTTP_OK else "nothing"
    except ConfigurationError as error:
        said = str(error)
    raise NoNameServer(f"{url} does not say where name servers are: {said}")


def client_id(config: ClientConfig, process: Process, unique: int) -> str:
    """
    `ip@instanceName[@unitName]`, as Java's.

    :param unique: tells instances of one process from each other.
    """
    name = config.instance_name
    if name == "DEFAULT":
        name = f"{process.pid}#{unique}"
    unit = f"@{config.unit_name}" if config.unit_name.strip() else ""
    return f"{config.client_ip or process.address}@{name}{unit}"
