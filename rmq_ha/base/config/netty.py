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
        "The port for clients. Without the key it is 10911 in a broker and 9876 in a name "
        "server. A broker also uses listenPort - 2 for clients and listenPort + 1 for "
        "replication.",
        most=MOST_PORT,
        local=Local.LISTENS,
    )
    server_channel_max_idle_time_seconds: int = key(
        "serverChannelMaxIdleTimeSeconds",
        120,
        "After how many seconds without data in either direction the server closes a connection.",
        least=1,
        mutable=True,
    )
    max_connections: int = own_key(
        "maxConnections",
        0,
        "The most connections that all ports of this process take together. 0: as many as the "
        "limit of open files allows, if a quarter of it, 96 to 16384, is kept for files. A "
        "larger value counts as 0.",
        mutable=True,
    )
    max_connections_per_ip: int = own_key(
        "maxConnectionsPerIp",
        0,
        "The most connections of one address. A /64 network of IPv6 counts as one address. 0: "
        "half of maxConnections.",
        mutable=True,
    )
    max_header_size: int = own_key(
        "maxHeaderSize",
        262144,
        "The most bytes in the header of one request or answer from a peer. 16777216: any "
        "header that RocketMQ takes.",
        least=4096,
        most=16777216,
    )
    max_unfinished_bytes: int = own_key(
        "maxUnfinishedBytes",
        134217728,
        "The most bytes of requests that have not arrived completely, on all connections of a "
        "server. Beyond it, the server closes the connection with the oldest such request.",
        least=16777216,
    )
    max_unfinished_bytes_per_ip: int = own_key(
        "maxUnfinishedBytesPerIp",
        67108864,
        "The most bytes of requests that have not arrived completely, from one address. Newer "
        "requests of the address wait until older ones are complete. Raise it if many large "
        "messages come from behind one NAT.",
        least=16777216,
    )
    frame_timeout_seconds: int = own_key(
        "frameTimeoutSeconds",
        120,
        "Within how many seconds a request that has begun has to arrive completely. 0, as "
        "RocketMQ: there is no limit.",
    )
    turn_millis: int = own_key(
        "turnMillis",
        5,
        "For how many ms the requests of one connection are served before other connections "
        "come first. 0: all requests that have arrived are served at once.",
        mutable=True,
    )
    turn_millis_per_ip: int = own_key(
        "turnMillisPerIp",
        5,
        "The same as turnMillis, for all connections of one address together. A request that "
        "takes longer is charged to the next turns. 0: no limit.",
        mutable=True,
    )
    max_requests_per_second_per_ip: int = own_key(
        "maxRequestsPerSecondPerIp",
        0,
        "How many requests of one address are read in a second. The server reads further ones "
        "later and refuses none. 0: no limit.",
        mutable=True,
    )
    max_bytes_per_second_per_ip: int = own_key(
        "maxBytesPerSecondPerIp",
        0,
        "How many bytes of requests and answers one address may have in a second. The server "
        "reads further requests later. 0: no limit.",
        mutable=True,
    )
    max_requests_per_second_per_account: int = own_key(
        "maxRequestsPerSecondPerAccount",
        0,
        "How many requests of one account are read in a second, over all its connections. The "
        "server reads further ones later. 0: no limit.",
        mutable=True,
    )
    max_bytes_per_second_per_account: int = own_key(
        "maxBytesPerSecondPerAccount",
        0,
        "How many bytes of requests and answers one account may have in a second, over all its "
        "connections. The server reads further requests later. 0: no limit.",
        mutable=True,
    )


@dataclass(slots=True, kw_only=True)
class NettyClientConfig:
    """The keys of a broker's connections to other servers."""

    connect_timeout_millis: int = key(
        "connectTimeoutMillis",
        3000,
        "How long this server waits for a connection to another server, ms.",
        least=1,
    )
    client_channel_max_idle_time_seconds: int = key(
        "clientChannelMaxIdleTimeSeconds",
        120,
        "After how many seconds without a request this server closes its connection to another "
        "server.",
        least=1,
    )
    client_close_socket_if_timeout: bool = key(
        "clientCloseSocketIfTimeout",
        True,
        "true: close the connection to another server if its answer does not come in time.",
    )
    use_tls: bool = key("useTLS", False, "true: connect to other servers with TLS.")
