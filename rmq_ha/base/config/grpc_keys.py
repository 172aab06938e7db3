"""The keys of the port for RocketMQ 5's clients, with the names of RocketMQ's rmq-proxy.json.

Spec: grpc.md, section 12.
"""

from dataclasses import dataclass

from rmq_ha.base.config.fields import key_of_5, own_key
from rmq_ha.base.config.timer_keys import TimerConfig


@dataclass(slots=True, kw_only=True)
class GrpcConfig(TimerConfig):
    """The settings of the gRPC port."""

    grpc_max_inbound_message_size: int = key_of_5(
        "grpcMaxInboundMessageSize",
        16777216,
        "The most bytes of one request of a gRPC client. A larger request is refused before it "
        "is read. RocketMQ 5's default is 136314880.",
        least=65536,
    )
    grpc_client_idle_time_mills: int = key_of_5(
        "grpcClientIdleTimeMills",
        120000,
        "After how many ms without a call a gRPC connection is closed. A connection with open "
        "calls is asked for a sign of life after this time of silence.",
        least=1000,
    )
    grpc_shutdown_time_seconds: int = key_of_5(
        "grpcShutdownTimeSeconds",
        30,
        "For how many seconds a stop of the broker waits for open gRPC calls to end.",
    )
    grpc_max_queued_bytes: int = own_key(
        "grpcMaxQueuedBytes",
        268435456,
        "How many bytes of answers may wait until gRPC clients read them, on all connections "
        "together. One connection may have half of it. Beyond it, the connection with most of "
        "these bytes is closed.",
        least=33554432,
    )
