"""Settings as keywords of `connect`, of producers and of consumers, with their types.

Each class here has the settings of the dataclass that its docstring names; a test compares them.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import timedelta
from difflib import get_close_matches
from ssl import SSLContext
from typing import Any, TypedDict, TypeVar

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.process import Process
from rmq_ha.base.remoting.signing import Credentials
from rmq_ha.client.rules.consumer_settings import ConsumeFromWhere, MessageModel
from rmq_ha.client.rules.old_spellings import old_names
from rmq_ha.client.rules.settings import ClientConfig

C = TypeVar("C")


class ClientOptions(TypedDict, total=False):
    """Settings of a client; see `ClientConfig`."""

    namesrv_addr: str
    namesrv_domain: str
    namesrv_domain_subgroup: str
    client_ip: str
    instance_name: str
    unit_name: str
    unit_mode: bool
    namespace: str
    credentials: Credentials | None
    sign_time: bool
    sign_only_over_tls: bool
    use_tls: bool
    tls: Mapping[str, str]
    ssl_context: SSLContext | None
    vip_channel_enabled: bool
    poll_name_server_interval_ms: int
    heartbeat_broker_interval_ms: int
    persist_consumer_offset_interval_ms: int
    pull_time_delay_when_exception_ms: int
    mq_client_api_timeout_ms: int
    connect_timeout_ms: int
    route_idle_ms: int
    process: Process | None


class ProducerOptions(TypedDict, total=False):
    """Settings of a producer; see `ProducerConfig`."""

    producer_group: str
    create_topic_key: str
    default_topic_queue_nums: int
    send_msg_timeout_ms: int
    delivery_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    retry_chosen_queue: bool
    chosen_queue_may_move: bool
    idempotent: bool
    refuse_unserved_properties: bool
    compress_msg_body_over_howmuch: int
    compress_type: str
    compress_level: int
    retry_times_when_send_failed: int
    retry_another_broker_when_not_store_ok: bool
    max_message_size: int
    max_batch_size: int
    send_latency_fault_enable: bool
    max_in_flight: int
    max_in_flight_bytes: int
    max_waiting: int
    stop_timeout_ms: int


class ConsumerOptions(TypedDict, total=False):
    """Settings of any consumer; see `ConsumerConfig`."""

    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    consume_timestamp: str
    unit_mode: bool
    connect_broker_by_user: bool
    default_broker_id: int
    rebalance_interval_ms: int
    local_offset_store_dir: str
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int


class PushConsumerOptions(ConsumerOptions, total=False):
    """Settings of a push consumer; see `PushConsumerConfig`."""

    consume_concurrency: int
    consume_message_batch_max_size: int
    consume_concurrently_max_span: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_topic: int
    pull_interval_ms: int
    pull_batch_size: int
    post_subscription_when_pull: bool
    max_reconsume_times: int
    suspend_current_queue_time_ms: int
    consume_timeout_ms: int
    await_termination_when_shutdown_ms: int
    client_rebalance: bool
    pop_invisible_time_ms: int
    pop_batch_nums: int
    pop_threshold_for_queue: int


class PullConsumerOptions(ConsumerOptions, total=False):
    """Settings of a pull consumer; see `PullConsumerConfig`."""

    broker_suspend_max_time_ms: int
    consumer_timeout_when_suspend_ms: int
    consumer_pull_timeout_ms: int
    max_reconsume_times: int


class LitePullConsumerOptions(PullConsumerOptions, total=False):
    """Settings of a lite pull consumer; see `LitePullConsumerConfig`."""

    auto_commit: bool
    auto_commit_interval_ms: int
    pull_batch_size: int
    pull_threshold_for_all: int
    consume_max_span: int
    poll_timeout_ms: int


class SimpleConsumerOptions(TypedDict, total=False):
    """Settings of a simple consumer; see `SimpleConsumerConfig`."""

    await_duration: timedelta
    order: bool
    consume_from_where: ConsumeFromWhere
    ack_timeout_ms: int


class BlockingClientOptions(ClientOptions, ProducerOptions, total=False):
    """Settings of a `BlockingClient`, which is a client and a producer."""


def settings_of(kind: type[C], config: C | None, options: Mapping[str, Any]) -> C:
    """
    Return settings of the given kind with some options set.

    :param config: the settings that the options change; None for the defaults.
    :raises TypeError: an option is no setting of this kind.
    """
    if not options:
        return kind() if config is None else config
    names = _names(kind)
    for name in options:
        if name not in names and name not in old_names(kind):
            near = get_close_matches(name, names, 1)
            advice = f": is {near[0]} meant?" if near else ""
            raise TypeError(f"{kind.__name__} has no setting {name}{advice}")
    return kind(**options) if config is None else replace(config, **options)  # type: ignore[type-var]


def client_settings(settings: ClientConfig | str, options: Mapping[str, Any]) -> ClientConfig:
    """
    Return the settings of a client with some options set.

    :param settings: settings, or only the name servers as `host:port;host:port`.
    :raises ConfigurationError: it is neither.
    """
    if not isinstance(settings, str | ClientConfig):
        raise ConfigurationError(
            f"a client is made with its name servers as a text, 'host:port;host:port', or with a "
            f"ClientConfig, not with {type(settings).__name__}"
        )
    if isinstance(settings, str):
        options = {"namesrv_addr": settings, **options}
        return settings_of(ClientConfig, None, options)
    return settings_of(ClientConfig, settings, options)


def split_options(
    options: Mapping[str, Any], kind: type[C]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options that are settings of `kind`, and the other options."""
    names = _names(kind) | old_names(kind).keys()
    own = {name: value for name, value in options.items() if name in names}
    return own, {name: value for name, value in options.items() if name not in names}


def _names(kind: type[C]) -> set[str]:
    return {item.name for item in fields(kind)}  # type: ignore[arg-type]
