"""The transport keys, under the names that the Java broker gave them.

Spec: store.md, section 13.
"""

from dataclasses import dataclass

from rmq_ha.base.config.fields import Local, key, own_key
from rmq_ha.base.model.host_port import MOST_PORT


@dataclass(slots=True, kw_only=True)
class NettyServerConfig:
    """The keys of the ports on which a server listens."""

    listen_port: int = key(
        "listenPort",
        8888,
        "port for clients; without the key 10911 in a broker and 9876 in a name server",
        most=MOST_PORT,
        local=Local.LISTENS,
    )
    server_channel_max_idle_time_seconds: int = key(
        "serverChannelMaxIdleTimeSeconds",
        120,
        "seconds without a request after which a connection is closed",
        least=1,
        mutable=True,
    )
    max_connections: int = own_key(
        "maxConnections",
        0,
        "connections that all ports of this process take together; 0, and at most: what the "
        "limit of open files leaves when a quarter of it, 96 to 16384, is kept for files",
        mutable=True,
    )
    max_connections_per_ip: int = own_key(
        "maxConnectionsPerIp",
        0,
        "connections of one address (IPv6: of one /64); 0: half of maxConnections",
        mutable=True,
    )
    max_header_size: int = own_key(
        "maxHeaderSize",
        262144,
        "bytes of the header of what a peer sends; 16777216: any, as RocketMQ takes",
        least=4096,
        most=16777216,
    )
    max_unfinished_bytes: int = own_key(
        "maxUnfinishedBytes",
        134217728,
        "bytes of frames that are not whole yet, on all connections of a server; beyond it "
        "the connection with the oldest of them is closed",
        least=16777216,
    )
    max_unfinished_bytes_per_ip: int = own_key(
        "maxUnfinishedBytesPerIp",
        67108864,
        "bytes of unfinished frames from one address; the newest wait until all of them find room",
        least=16777216,
    )
    frame_timeout_seconds: int = own_key(
        "frameTimeoutSeconds",
        120,
        "seconds within which a frame that has begun has to be whole; 0: any time, as RocketMQ",
    )
    turn_millis: int = own_key(
        "turnMillis",
        5,
        "ms after which a connection's requests wait for the next turn, and others come "
        "first; 0: all that came is served at once",
        mutable=True,
    )
    turn_millis_per_ip: int = own_key(
        "turnMillisPerIp",
        5,
        "ms of a turn for all connections of one address together; a longer request counts "
        "for the next turns, too",
        mutable=True,
    )
    max_requests_per_second_per_ip: int = own_key(
        "maxRequestsPerSecondPerIp",
        0,
        "requests of one address in a second; later ones are read later; 0: any",
        mutable=True,
    )
    max_bytes_per_second_per_ip: int = own_key(
        "maxBytesPerSecondPerIp",
        0,
        "bytes of requests and answers of one address in a second; 0: any",
        mutable=True,
    )
    max_requests_per_second_per_account: int = own_key(
        "maxRequestsPerSecondPerAccount",
        0,
        "requests of one account in a second, wherever it signs; 0: any",
        mutable=True,
    )
    max_bytes_per_second_per_account: int = own_key(
        "maxBytesPerSecondPerAccount",
        0,
        "bytes of requests and answers of one account in a second; 0: any",
        mutable=True,
    )


@dataclass(slots=True, kw_only=True)
class NettyClientConfig:
    """The keys of a broker's connections to other servers."""

    connect_timeout_millis: int = key(
        "connectTimeoutMillis", 3000, "ms to wait for a connection to another server", least=1
    )
    client_channel_max_idle_time_seconds: int = key(
        "clientChannelMaxIdleTimeSeconds",
        120,
        "seconds without a request after which a connection to another server is closed",
        least=1,
    )
    client_close_socket_if_timeout: bool = key(
        "clientCloseSocketIfTimeout",
        True,
        "close the connection when an answer to a request does not come in time",
    )
    use_tls: bool = key("useTLS", False, "connect to other servers by TLS")
