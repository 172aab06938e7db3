"""The keys of the port for RocketMQ 5's clients, with the names of RocketMQ's rmq-proxy.json.

Spec: grpc.md, section 12.
"""

from dataclasses import dataclass

from rmq_ha.base.config.fields import Local, key_of_5, own_key
from rmq_ha.base.config.pop_keys import PopConfig
from rmq_ha.base.config.text_rules import ADDRESS, one_of
from rmq_ha.base.model.attributes import MESSAGE_TYPES, MIXED
from rmq_ha.base.model.host_port import MOST_PORT


@dataclass(slots=True, kw_only=True)
class GrpcConfig(PopConfig):
    """The settings of the gRPC port."""

    grpc_server_port: int = key_of_5(
        "grpcServerPort",
        0,
        "port for clients of RocketMQ 5, which speak gRPC; it may be listenPort. 0: closed. Needs "
        "the packages of rmq-ha[grpc]. RocketMQ 5's proxy: 8081",
        most=MOST_PORT,
        local=Local.LISTENS,
    )
    grpc_advertised: str | None = own_key(
        "grpcAdvertised",
        None,
        "host:port of this broker's gRPC port in the routes that clients get, where they reach it "
        "by another address; empty: brokerIP1 and grpcServerPort",
        rule=ADDRESS,
    )
    grpc_default_message_type: str = own_key(
        "grpcDefaultMessageType",
        MIXED,
        "the messages that gRPC clients may send to a topic without the attribute message.type. "
        "RocketMQ 5's proxy: NORMAL",
        rule=one_of(*MESSAGE_TYPES),
        mutable=True,
        same_in_set=True,
    )
    enable_topic_message_type_check: bool = key_of_5(
        "enableTopicMessageTypeCheck",
        True,
        "refuse a message of a gRPC client whose type is not its topic's",
        mutable=True,
        same_in_set=True,
    )
    enable_message_body_empty_check: bool = key_of_5(
        "enableMessageBodyEmptyCheck",
        True,
        "refuse messages of gRPC clients without a body",
        mutable=True,
    )
    user_property_max_num: int = key_of_5(
        "userPropertyMaxNum",
        128,
        "most properties that a gRPC client may give a message",
        mutable=True,
    )
    max_user_property_size: int = key_of_5(
        "maxUserPropertySize",
        16384,
        "most bytes of the properties, tag and keys that a gRPC client may give a message",
        mutable=True,
    )
    max_message_group_size: int = key_of_5(
        "maxMessageGroupSize",
        64,
        "a message group of a gRPC client has fewer bytes than this",
        least=2,
        mutable=True,
    )
    max_transaction_recovery_second: int = key_of_5(
        "maxTransactionRecoverySecond",
        3600,
        "longest time, s, that a gRPC client may ask for before its transaction is checked",
        mutable=True,
    )
    max_delay_time_mills: int = key_of_5(
        "maxDelayTimeMills",
        0,
        "longest delay of a message of a gRPC client, ms; 0: timerMaxDelaySec. RocketMQ 5: "
        "86400000",
        is_long=True,
        mutable=True,
    )
    grpc_client_producer_max_attempts: int = key_of_5(
        "grpcClientProducerMaxAttempts",
        3,
        "attempts at a send that gRPC clients are told to make",
        least=1,
        mutable=True,
    )
    grpc_client_producer_backoff_initial_millis: int = key_of_5(
        "grpcClientProducerBackoffInitialMillis",
        10,
        "first pause between attempts that gRPC clients are told to make, ms",
        mutable=True,
    )
    grpc_client_producer_backoff_max_millis: int = key_of_5(
        "grpcClientProducerBackoffMaxMillis",
        1000,
        "longest pause between attempts that gRPC clients are told to make, ms",
        mutable=True,
    )
    grpc_client_producer_backoff_multiplier: int = key_of_5(
        "grpcClientProducerBackoffMultiplier",
        2,
        "factor from one pause to the next that gRPC clients are told",
        least=1,
        mutable=True,
    )
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
