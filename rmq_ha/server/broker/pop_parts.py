"""Builds POP consumption from the parts of a broker."""

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.tables.groups import SubscriptionGroupManager
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.server.pop.look import MOST_OUT
from rmq_ha.server.pop.service import PopService
from rmq_ha.server.pop.terms import PopTerms
from rmq_ha.server.store.message_store import DefaultMessageStore


def make_pops(
    configuration: BrokerConfiguration,
    store: DefaultMessageStore,
    topics: TopicConfigManager,
    groups: SubscriptionGroupManager,
    offsets: ConsumerOffsetManager,
) -> PopService:
    """
    Build the part that hands messages out with leases. If `popEnable` is set, it reads the leases
    from the store's log as they come.
    """
    ours = configuration.ours

    def threshold() -> int:
        is_limited = ours.enable_pop_message_threshold
        return ours.pop_inflight_message_threshold if is_limited else MOST_OUT

    def retries(group: str) -> int | None:
        config = groups.get(group)
        return None if config is None else config.retry_max_times

    def commit(group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        offsets.commit(group, topic, queue_id, queue_offset)

    pops = PopService(
        store,
        PopTerms(
            lambda: ours.pop_failover_grace,
            threshold,
            lambda: ours.pop_max_inflight,
            lambda: ours.pop_broker_dlq,
            lambda: ours.enable_retry_topic_v2,
            retries,
            lambda: topics.table,
            topics.create_in_send_back,
            offsets.query,
            commit,
        ),
        f"{configuration.store.store_path_root_dir}/config/popState",
        is_enabled=ours.pop_enable,
    )
    if pops.is_enabled:
        pops.follow(store)
    return pops
