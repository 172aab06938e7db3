"""MessageStoreConfig: the keys of a broker that are about its store and replication.

Spec: store.md, section 13.
"""

from dataclasses import dataclass

from rmq_ha.base.config.fields import Local, key
from rmq_ha.base.config.observed_settings import ObservedSettings
from rmq_ha.base.config.text_rules import ADDRESS, HOURS, LEVELS, ONE_DIRECTORY
from rmq_ha.base.model.host_port import MOST_PORT
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.model.topics import DELAY_LEVELS


@dataclass(slots=True, kw_only=True)
class MessageStoreConfig(ObservedSettings):
    """The store and replication keys of a broker properties file."""

    store_path_root_dir: str | None = key(
        "storePathRootDir",
        None,
        "root directory of the store; empty: the folder store of the home directory",
        rule=ONE_DIRECTORY,
        local=Local.FILES,
    )
    store_path_commit_log: str | None = key(
        "storePathCommitLog",
        None,
        "directory of the commit log; empty: the folder commitlog of storePathRootDir",
        rule=ONE_DIRECTORY,
        local=Local.FILES,
    )
    store_path_dledger_commit_log: str | None = key(
        "storePathDLedgerCommitLog",
        None,
        "directories of the DLedger log, separated by commas; empty: below storePathRootDir",
        local=Local.FILES,
        needs="enableDLegerCommitLog",
    )
    mapped_file_size_commit_log: int = key(
        "mappedFileSizeCommitLog",
        1073741824,
        "bytes of one commit log file",
        least=4096,
        same_in_set=True,
    )
    mapped_file_size_consume_queue: int = key(
        "mappedFileSizeConsumeQueue",
        6000000,
        "bytes of one consume queue file, rounded up to a multiple of 20",
        least=20,
    )
    enable_consume_queue_ext: bool = key(
        "enableConsumeQueueExt", False, "write the extension files of consume queues"
    )
    mapped_file_size_consume_queue_ext: int = key(
        "mappedFileSizeConsumeQueueExt", 50331648, "bytes of one extension file", least=1
    )
    flush_interval_commit_log: int = key(
        "flushIntervalCommitLog",
        500,
        "ms between two flushes of the commit log with ASYNC_FLUSH",
        least=1,
        mutable=True,
    )
    flush_interval_consume_queue: int = key(
        "flushIntervalConsumeQueue",
        1000,
        "ms between two flushes of consume queues",
        least=1,
        mutable=True,
    )
    clean_resource_interval: int = key(
        "cleanResourceInterval", 10000, "ms between two searches for files to delete", least=1
    )
    delete_when: str = key(
        "deleteWhen",
        "04",
        "hours of the day at which expired files are deleted",
        rule=HOURS,
        mutable=True,
        same_in_set=True,
    )
    disk_max_used_space_ratio: int = key(
        "diskMaxUsedSpaceRatio",
        75,
        "% of used disk from which expired files are deleted at any hour; 10 at least, 95 at most",
        most=100,
        mutable=True,
    )
    file_reserved_time: int = key(
        "fileReservedTime",
        72,
        "hours for which a commit log file is kept",
        mutable=True,
        same_in_set=True,
    )
    max_message_size: int = key(
        "maxMessageSize",
        4194304,
        "bytes of the largest message or batch",
        least=1,
        mutable=True,
        same_in_set=True,
    )
    check_crcon_recover: bool = key(
        "checkCRCOnRecover", True, "check the CRC of messages when the log is read after a crash"
    )
    flush_commit_log_least_pages: int = key(
        "flushCommitLogLeastPages",
        4,
        "pages of 4 KiB that an asynchronous flush waits for",
        mutable=True,
    )
    flush_commit_log_thorough_interval: int = key(
        "flushCommitLogThoroughInterval",
        10000,
        "ms after which an asynchronous flush waits for no more pages",
        mutable=True,
    )
    flush_consume_queue_thorough_interval: int = key(
        "flushConsumeQueueThoroughInterval",
        60000,
        "ms after which all consume queues and the checkpoint are flushed",
        mutable=True,
    )
    max_transfer_bytes_on_message_in_memory: int = key(
        "maxTransferBytesOnMessageInMemory",
        262144,
        "bytes of one pull of recent messages",
        least=1,
        mutable=True,
    )
    max_transfer_count_on_message_in_memory: int = key(
        "maxTransferCountOnMessageInMemory",
        32,
        "messages of one pull of recent messages",
        least=1,
        mutable=True,
    )
    max_transfer_bytes_on_message_in_disk: int = key(
        "maxTransferBytesOnMessageInDisk",
        65536,
        "bytes of one pull of old messages",
        least=1,
        mutable=True,
    )
    max_transfer_count_on_message_in_disk: int = key(
        "maxTransferCountOnMessageInDisk",
        8,
        "messages of one pull of old messages",
        least=1,
        mutable=True,
    )
    access_message_in_memory_max_ratio: int = key(
        "accessMessageInMemoryMaxRatio",
        40,
        "% of the memory: messages within so many last bytes of the log are recent",
        most=100,
        mutable=True,
    )
    message_index_enable: bool = key("messageIndexEnable", True, "build the index of keys")
    max_hash_slot_num: int = key(
        "maxHashSlotNum", 5000000, "hash slots of one index file", least=1, most=268435456
    )
    max_index_num: int = key(
        "maxIndexNum", 20000000, "entries of one index file", least=2, most=100000000
    )
    max_msgs_num_batch: int = key(
        "maxMsgsNumBatch", 64, "most messages that a search by key finds", least=1, mutable=True
    )
    message_index_safe: bool = key(
        "messageIndexSafe", False, "after a crash rebuild the index from its own checkpoint, too"
    )
    ha_listen_port: int = key(
        "haListenPort",
        10912,
        "port for slaves; the start sets listenPort + 1",
        most=MOST_PORT,
        local=Local.LISTENS,
    )
    ha_send_heartbeat_interval: int = key(
        "haSendHeartbeatInterval",
        5000,
        "ms between two heartbeats of master and slave",
        least=1,
        mutable=True,
    )
    ha_housekeeping_interval: int = key(
        "haHousekeepingInterval",
        20000,
        "ms without data after which master and slave close their connection",
        least=1,
        mutable=True,
    )
    ha_transfer_batch_size: int = key(
        "haTransferBatchSize", 32768, "bytes of one frame of replication", least=1, mutable=True
    )
    ha_master_address: str | None = key(
        "haMasterAddress",
        None,
        "address of the master's replication port, for a slave; empty: name servers know it",
        rule=ADDRESS,
        local=Local.SENDS,
        dialled=True,
    )
    ha_slave_fallbehind_max: int = key(
        "haSlaveFallbehindMax",
        268435456,
        "bytes of lag up to which a SYNC_MASTER waits for a slave",
        least=1,
        mutable=True,
    )
    broker_role: BrokerRole = key(
        "brokerRole",
        BrokerRole.ASYNC_MASTER,
        "whether a put waits for a slave, or the broker is a slave",
        local=Local.IDENTITY,
    )
    flush_disk_type: FlushDiskType = key(
        "flushDiskType",
        FlushDiskType.ASYNC_FLUSH,
        "whether a put waits for the disk",
        same_in_set=True,
    )
    sync_flush_timeout: int = key(
        "syncFlushTimeout",
        5000,
        "ms for which a put waits for the disk with SYNC_FLUSH",
        least=1,
        mutable=True,
    )
    slave_timeout: int = key(
        "slaveTimeout",
        3000,
        "ms for which a put waits for a slave with SYNC_MASTER",
        least=1,
        mutable=True,
    )
    message_delay_level: str = key(
        "messageDelayLevel",
        DELAY_LEVELS,
        "delays of the levels 1, 2, 3 and so on",
        rule=LEVELS,
        same_in_set=True,
    )
    flush_delay_offset_interval: int = key(
        "flushDelayOffsetInterval",
        10000,
        "ms between two writes of delayOffset.json",
        least=1,
        is_long=True,
    )
    clean_file_forcibly_enable: bool = key(
        "cleanFileForciblyEnable",
        True,
        "delete files before they expire while the disk is almost full",
        mutable=True,
    )
    offset_check_in_slave: bool = key(
        "offsetCheckInSlave",
        False,
        "a slave, and a master without a lease, corrects offsets of consumers",
        mutable=True,
    )
    os_page_cache_busy_time_out_mills: int = key(
        "osPageCacheBusyTimeOutMills",
        1000,
        "ms that one write may take before sends are refused as busy",
        is_long=True,
        mutable=True,
    )
    default_query_max_num: int = key(
        "defaultQueryMaxNum",
        32,
        "most messages that a search by unique key finds",
        least=1,
        mutable=True,
    )
    enable_dleger_commit_log: bool = key(
        "enableDLegerCommitLog",
        False,
        "a DLedger (Raft) group keeps the commit log",
        local=Local.GROUP,
    )
    dleger_group: str | None = key(
        "dLegerGroup",
        None,
        "name of the DLedger group, equal at all members",
        local=Local.GROUP,
        needs="enableDLegerCommitLog",
    )
    dleger_peers: str | None = key(
        "dLegerPeers",
        None,
        "all members, this one included: n0-host:port;n1-host:port",
        local=Local.GROUP,
        needs="enableDLegerCommitLog",
    )
    dleger_self_id: str | None = key(
        "dLegerSelfId",
        None,
        "id of this broker in dLegerPeers",
        local=Local.GROUP,
        needs="enableDLegerCommitLog",
    )
    preferred_leader_id: str | None = key(
        "preferredLeaderId",
        None,
        "members that should lead: n0;n1",
        local=Local.GROUP,
        needs="enableDLegerCommitLog",
    )
    enable_batch_push: bool = key(
        "enableBatchPush",
        False,
        "a DLedger leader pushes several entries in one request",
        needs="enableDLegerCommitLog",
    )
