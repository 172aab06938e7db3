"""The transport keys, under the names that the Java broker gave them.

Spec: store.md, section 13.
"""

from dataclasses import dataclass

from rmq_ha.base.config.fields import key


@dataclass(slots=True, kw_only=True)
class NettyServerConfig:
    """Listening side, broker and name server."""

    listen_port: int = key("listenPort", 8888, "listenPort")
    server_worker_threads: int = key("serverWorkerThreads", 8, "codec threads")
    server_callback_executor_threads: int = key(
        "serverCallbackExecutorThreads", 0, "default executor"
    )
    server_selector_threads: int = key("serverSelectorThreads", 3, "I/O threads")
    server_oneway_semaphore_value: int = key(
        "serverOnewaySemaphoreValue", 256, "outgoing one-way limit"
    )
    server_async_semaphore_value: int = key("serverAsyncSemaphoreValue", 64, "outgoing async limit")
    server_channel_max_idle_time_seconds: int = key(
        "serverChannelMaxIdleTimeSeconds", 120, "idle close"
    )
    max_connections: int = key(
        "maxConnections",
        0,
        "ours: connections that all ports of this process take together; 0, and at most: what the "
        "limit of open files leaves when a quarter of it, 64 to 1024, is kept for files",
    )
    max_connections_per_ip: int = key(
        "maxConnectionsPerIp",
        0,
        "ours: of them, of one address (IPv6: of one /64); 0: half of all",
    )
    max_header_size: int = key(
        "maxHeaderSize",
        262144,
        "ours: bytes of the header of what a peer sends; 16777216: any, as RocketMQ takes",
    )
    max_unfinished_bytes: int = key(
        "maxUnfinishedBytes",
        134217728,
        "ours: bytes of frames that are not whole yet, on all connections of a server; beyond it "
        "the connection with the oldest of them is closed",
    )
    max_unfinished_bytes_per_ip: int = key(
        "maxUnfinishedBytesPerIp",
        67108864,
        "ours: of them, from one address; the newest wait until there is room for all of them",
    )
    frame_timeout_seconds: int = key(
        "frameTimeoutSeconds",
        120,
        "ours: within which a frame that has begun has to be whole; 0: never, as RocketMQ",
    )
    turn_millis: int = key(
        "turnMillis",
        5,
        "ours: ms after which a connection's requests wait for the next turn, and others come "
        "first; 0: all that came is served at once",
    )
    turn_millis_per_ip: int = key(
        "turnMillisPerIp",
        5,
        "ours: the same for all connections of one address together; a request that takes more "
        "counts for the next turns too",
    )
    max_requests_per_second_per_ip: int = key(
        "maxRequestsPerSecondPerIp",
        0,
        "ours: of one address; what comes beyond it is read later. 0: any",
    )
    max_bytes_per_second_per_ip: int = key(
        "maxBytesPerSecondPerIp", 0, "ours: the same of requests and answers together"
    )
    max_requests_per_second_per_account: int = key(
        "maxRequestsPerSecondPerAccount", 0, "ours: of one account, wherever it signs"
    )
    max_bytes_per_second_per_account: int = key(
        "maxBytesPerSecondPerAccount", 0, "ours: the same of requests and answers together"
    )
    server_socket_snd_buf_size: int = key("serverSocketSndBufSize", 0, "serverSocketSndBufSize")
    server_socket_rcv_buf_size: int = key("serverSocketRcvBufSize", 0, "serverSocketRcvBufSize")
    write_buffer_high_water_mark: int = key(
        "writeBufferHighWaterMark", 0, "writeBufferHighWaterMark"
    )
    write_buffer_low_water_mark: int = key("writeBufferLowWaterMark", 0, "writeBufferLowWaterMark")
    server_socket_backlog: int = key("serverSocketBacklog", 1024, "serverSocketBacklog")
    server_pooled_byte_buf_allocator_enable: bool = key(
        "serverPooledByteBufAllocatorEnable", True, "serverPooledByteBufAllocatorEnable"
    )
    use_epoll_native_selector: bool = key("useEpollNativeSelector", False, "useEpollNativeSelector")


@dataclass(slots=True, kw_only=True)
class NettyClientConfig:
    """The broker's outgoing connections."""

    client_worker_threads: int = key("clientWorkerThreads", 4, "clientWorkerThreads")
    client_callback_executor_threads: int | None = key(
        "clientCallbackExecutorThreads", None, "clientCallbackExecutorThreads"
    )
    client_oneway_semaphore_value: int = key(
        "clientOnewaySemaphoreValue", 65535, "clientOnewaySemaphoreValue"
    )
    client_async_semaphore_value: int = key(
        "clientAsyncSemaphoreValue", 65535, "clientAsyncSemaphoreValue"
    )
    connect_timeout_millis: int = key("connectTimeoutMillis", 3000, "connectTimeoutMillis")
    channel_not_active_interval: int = key("channelNotActiveInterval", 60000, "unused")
    client_channel_max_idle_time_seconds: int = key(
        "clientChannelMaxIdleTimeSeconds", 120, "clientChannelMaxIdleTimeSeconds"
    )
    client_socket_snd_buf_size: int = key("clientSocketSndBufSize", 0, "clientSocketSndBufSize")
    client_socket_rcv_buf_size: int = key("clientSocketRcvBufSize", 0, "clientSocketRcvBufSize")
    client_pooled_byte_buf_allocator_enable: bool = key(
        "clientPooledByteBufAllocatorEnable", False, "unused"
    )
    client_close_socket_if_timeout: bool = key(
        "clientCloseSocketIfTimeout", True, "clientCloseSocketIfTimeout"
    )
    use_tls: bool = key("useTLS", False, "set before the file is read")
    write_buffer_high_water_mark: int = key(
        "writeBufferHighWaterMark", 0, "shared key with the server object"
    )
    write_buffer_low_water_mark: int = key(
        "writeBufferLowWaterMark", 0, "shared key with the server object"
    )
