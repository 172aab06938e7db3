"""Settings of clients; names and defaults are those of the Java client, in snake_case.

Spec: remoting.md, sections 11.1, 11.2 and 11.6.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
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
"""How long looked-up addresses of name servers are used before the next look-up, as in Java."""
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
    Settings that all producers and consumers of one `ClientInstance` share.

    :ivar namesrv_addr: addresses of name servers as `host:port;host:port`; if empty, those of the
        environment variable NAMESRV_ADDR.
    :ivar namesrv_domain: `host` or `host:port` of an HTTP server that lists the name servers. It is
        asked if no addresses are set, and again every two minutes.
    :ivar namesrv_domain_subgroup: which list of that server to ask for, as Java's
        `rocketmq.namesrv.domain.subgroup`.
    :ivar client_ip: part of the client id; this machine's address if empty.
    :ivar instance_name: part of the client id; `DEFAULT` stands for a unique name of the process.
    :ivar namespace: put before topics and groups, as `<namespace>%`.
    :ivar credentials: the account that signs requests, for brokers with ACL.
    :ivar sign_time: also sign code, time and number of each request. Brokers of rmq-ha check them;
        other brokers ignore them.
    :ivar sign_only_over_tls: refuse to make a client with credentials that would sign over plain
        TCP, or to servers that do not prove who they are. Whoever listens on such a connection
        could repeat its requests.
    :ivar use_tls: connect with TLS, by the keys in `tls`.
    :ivar tls: RocketMQ's `tls.*` keys. With `tls.client.trustCertPath` servers have to prove who
        they are; without it a warning says that no server is checked. Unlike in RocketMQ
        `tls.test.mode.enable` is false, or these keys would have no effect.
    :ivar ssl_context: connect with TLS by this context, instead of `use_tls` and `tls`. It cannot
        be pickled.
    :ivar vip_channel_enabled: send to the brokers' port minus 2.
    :ivar poll_name_server_interval_ms: time between two updates of the routes, in ms.
    :ivar heartbeat_broker_interval_ms: time between two heartbeats, in ms.
    :ivar persist_consumer_offset_interval_ms: time between two writes of consumers' offsets, in ms.
    :ivar pull_time_delay_when_exception_ms: how long a pull waits after an error, in ms.
    :ivar mq_client_api_timeout_ms: timeout of calls that are neither sends nor pulls, in ms.
    :ivar connect_timeout_ms: timeout of one attempt to connect, in ms.
    :ivar route_idle_ms: after this time without use a route is forgotten, in ms.
    :ivar process: the process in the client's id; None for the current process.
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
        Return the addresses of name servers; an empty list if `namesrv_domain` lists them.

        :raises ConfigurationError: neither addresses nor `namesrv_domain` are set, or an address is
            not valid.
        """
        known = self.namesrv_addr or environ.get("NAMESRV_ADDR", "")
        return [] if self.namesrv_domain and not known else name_servers(known)

    def address_server(self) -> str:
        """
        Return the URL that lists the name servers, in Java's form.

        :raises ConfigurationError: `namesrv_domain` is neither `host` nor `host:port`.
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
        """Return the `tls.*` keys with this client's defaults."""
        return {"tls.test.mode.enable": "false", **self.tls}

    def signer(self, now_ms: Callable[[], int], random: Random) -> RequestSigner | None:
        """Make a signer for the account; None without credentials. Processes do not share one."""
        if self.credentials is None:
            return None
        return RequestSigner(
            self.credentials, SignedTimes(now_ms, random) if self.sign_time else None
        )

    def context(self) -> SSLContext | None:
        """
        Return the application's SSL context; None if it has none.

        :raises ConfigurationError: `use_tls` or `tls` is set too, or the context checks less than
            `sign_only_over_tls` demands.
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
        """Return the setting that demands that servers prove who they are; empty if none does."""
        demands = self.sign_only_over_tls and self.credentials is not None
        return "sign_only_over_tls=True" if demands else ""

    def remoting(self) -> NettyClientConfig:
        """Return the settings of the client's connections."""
        return NettyClientConfig(
            connect_timeout_millis=self.connect_timeout_ms, use_tls=self.use_tls
        )


@with_old_spellings(send_msg_timeout="send_msg_timeout_ms", stop_timeout="stop_timeout_ms")
@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """
    Settings of one producer.

    :ivar producer_group: the group whose members brokers ask how a transaction ended.
    :ivar create_topic_key: the topic whose route is used for a topic without a route.
    :ivar send_msg_timeout_ms: time for one round of attempts of a send, in ms; as in RocketMQ it
        holds for the first attempt and its retries together.
    :ivar delivery_timeout_ms: how long a send goes on with further rounds, and pauses between them,
        after an error that may pass, like a restarting broker; in ms. 0 allows one round, as
        RocketMQ does.
    :ivar retry_backoff_ms: about the length of the first pause, in ms; later pauses are longer.
    :ivar retry_backoff_max_ms: the longest pause, in ms.
    :ivar retry_chosen_queue: whether a send to a given queue, or with a selector, has further
        rounds too: one attempt a round, always at the same queue. False allows one attempt in all,
        as RocketMQ does.
    :ivar chosen_queue_may_move: whether each further round asks a send's selector again. It then
        chooses among the queues that brokers serve at the time, and the order of a key is lost.
    :ivar idempotent: whether a message is stored once, even if it is sent several times. Only
        brokers that compare ids (rmq-ha with `duplicateWindowMillis`) are then sent to. A send that
        may have reached a broker is repeated only at that broker name.
    :ivar refuse_unserved_properties: whether to refuse properties that only RocketMQ 5 acts on,
        such as TIMER_DELAY_SEC: brokers of 4.9 answer SEND_OK and deliver at once. Set it to False
        if the brokers are of version 5, or if delivery at once is acceptable.
    :ivar compress_msg_body_over_howmuch: bodies of at least this many bytes are compressed.
    :ivar compress_type: ZLIB, which every consumer reads; or LZ4 or ZSTD (`rmq-ha[compression]`),
        which consumers of Java 4.9.7 and 5.x and of rmq-ha read.
    :ivar compress_level: 0 to 9 for ZLIB, 1 to 22 for ZSTD; ignored for LZ4.
    :ivar retry_times_when_send_failed: how many attempts may follow the first one.
    :ivar retry_another_broker_when_not_store_ok: whether to try another broker when a message is
        stored but not yet flushed or replicated.
    :ivar max_message_size: most bytes of a body; larger messages are refused.
    :ivar max_batch_size: most bytes of a batch's body; a larger batch is split.
    :ivar send_latency_fault_enable: whether to avoid brokers that were slow or failed.
    :ivar max_in_flight: how many sends may wait for a broker's answer.
    :ivar max_in_flight_bytes: how many bytes the bodies of these sends may have.
    :ivar max_waiting: how many sends may wait for a place in flight, or for a broker to come back;
        further sends are refused at once.
    :ivar stop_timeout_ms: how long `stop()` waits for sends in flight, in ms.
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
        The compression of bodies.

        :raises ConfigurationError: `compress_type` or `compress_level` is not valid.
        """
        return compression_of(self.compress_type, self.compress_level)

    def checked(self) -> "ProducerConfig":
        """
        Return these settings after a check.

        :raises ConfigurationError: a setting is out of its range, two settings contradict each
            other, or a library for `compress_type` is missing.
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
    Check that settings are in their ranges, and that choices are of their enumeration.

    :param config: a dataclass.
    :param ranges: from the name of a setting to its lowest and highest value.
    :raises ConfigurationError: a setting is out of its range, is no number, or is no such choice.
    """
    for setting in fields(config):  # type: ignore[arg-type]
        kind, value = type(setting.default), getattr(config, setting.name)
        if issubclass(kind, Enum) and not isinstance(value, kind):
            choices = ", ".join(f"{kind.__name__}.{choice.name}" for choice in kind)
            raise ConfigurationError(f"{setting.name} must be one of {choices}, not {value!r}")
    for name, (least, most) in ranges.items():
        value = getattr(config, name)
        if not isinstance(value, int | float) or not least <= value <= most:
            raise ConfigurationError(f"{name} must be from {least} to {most}, not {value!r}")


def name_servers(text: str) -> list[str]:
    """
    Parse a list of addresses like `a:9876;b`; the port may be left out.

    :raises ConfigurationError: the list is empty, or an address is not valid.
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
    Return the addresses in the first line of an address server's answer.

    :raises NoNameServer: the status is not 200, or the line is no list of addresses.
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
    Return a client id of Java's form: `ip@instanceName[@unitName]`.

    :param unique: tells instances of one process from each other.
    """
    name = config.instance_name
    if name == "DEFAULT":
        name = f"{process.pid}#{unique}"
    unit = f"@{config.unit_name}" if config.unit_name.strip() else ""
    return f"{config.client_ip or process.address}@{name}{unit}"
