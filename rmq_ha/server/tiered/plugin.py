"""Puts tiered storage around a store, because `messageStorePlugIn` names `tiered`."""

from typing import NamedTuple

from rmq_ha.base.config.journal import journal_name
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.interfaces import IBrokerContext
from rmq_ha.server.store.log.commitlog import CommitLog
from rmq_ha.server.store.message_store import DefaultMessageStore
from rmq_ha.server.tiered.blocks import BLOCK, BlockCache
from rmq_ha.server.tiered.catalogue import Catalogue
from rmq_ha.server.tiered.objects import ObjectStore
from rmq_ha.server.tiered.reading import TierReader
from rmq_ha.server.tiered.s3 import s3_objects
from rmq_ha.server.tiered.segments import SegmentKeys
from rmq_ha.server.tiered.uploading import LocalLog, Tier

_FEWEST_BLOCKS = 16


class TierSettings(NamedTuple):
    """
    The keys that begin with `tiered.`.

    :ivar endpoint: URL of the server; None for Amazon's.
    :ivar hours: how long the tier keeps messages; 0: for ever.
    :ivar cache: most bytes of objects that are kept in memory.
    """

    bucket: str
    prefix: str
    endpoint: str | None
    region: str | None
    hours: int
    cache: int


def tier_settings(broker: IBrokerContext) -> TierSettings:
    """:raises ConfigurationError: a key is missing, or its value is not valid."""
    bucket = broker.option("tiered.bucket")
    settings = TierSettings(
        bucket or "",
        broker.option("tiered.prefix") or "",
        broker.option("tiered.endpoint"),
        broker.option("tiered.region"),
        _number(broker, "tiered.reservedHours", 0),
        _number(broker, "tiered.cacheMiB", 64) << 20,
    )
    if not bucket:
        raise ConfigurationError("tiered.bucket is missing: name the bucket of the object store")
    if settings.endpoint and not settings.endpoint.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"tiered.endpoint={settings.endpoint} is not a URL: write http://host:port or "
            "https://host"
        )
    if settings.cache < _FEWEST_BLOCKS * BLOCK:
        raise ConfigurationError(f"tiered.cacheMiB must be at least {_FEWEST_BLOCKS}")
    return settings


def _number(broker: IBrokerContext, key: str, default: int) -> int:
    text = broker.option(key)
    if text is None:
        return default
    if not text.strip().isdigit():
        raise ConfigurationError(f"{key}={text} is not a whole number")
    return int(text)


def add_tier(broker: IBrokerContext, store: DefaultMessageStore) -> DefaultMessageStore:
    """
    Have a store use the object store that the configuration names.

    :raises ConfigurationError: the configuration does not allow it.
    """
    settings = tier_settings(broker)
    _check(broker, store)
    objects = s3_objects(settings.bucket, settings.endpoint, settings.region)
    tier_of(broker, store, settings, objects)
    return store


def tier_of(
    broker: IBrokerContext,
    store: DefaultMessageStore,
    settings: TierSettings,
    objects: ObjectStore,
) -> Tier:
    """Have a store use an object store; nothing is read before the store starts."""
    names = broker.configuration.broker
    keys = SegmentKeys(settings.prefix, names.broker_cluster_name, names.broker_name or "")
    catalogue = Catalogue()
    log = store.log
    assert isinstance(log, CommitLog)
    local = LocalLog(
        log.row,
        store.queues,
        lambda: min(store.dispatcher.position, log.flushed_offset),
        lambda: log.max_offset,
        store.store_timestamp_at,
    )
    blocks = BlockCache(broker.host.worker, objects, settings.cache)
    tier = Tier(broker.host, objects, keys, catalogue, blocks, local, settings.hours)
    store.older = TierReader(catalogue, keys, blocks, tier.figures)
    store.log_states.append(tier)
    keeps = store.cleaner.releases
    store.cleaner.releases = lambda end: keeps(end) and tier.releases(end)
    return tier


def _check(broker: IBrokerContext, store: DefaultMessageStore) -> None:
    configuration = broker.configuration
    if not isinstance(store, DefaultMessageStore):
        raise ConfigurationError(
            "messageStorePlugIn: name tiered first, since it needs the store itself"
        )
    is_plain = isinstance(store.log, CommitLog)
    if journal_name(configuration) not in ("classic", "controller") or not is_plain:
        raise ConfigurationError(
            "tiered storage works with a classic pair and in controller mode. A DLedger log has "
            "other files: docs/upgrade.md says how to move to controller mode"
        )
    if configuration.store.enable_consume_queue_ext:
        raise ConfigurationError(
            "tiered storage does not copy extensions of consume queues: set "
            "enableConsumeQueueExt=false"
        )
