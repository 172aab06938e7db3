"""MessageStoreConfig: the keys that shape the store and replication.

Spec: store.md, section 13.
"""

from dataclasses import dataclass

from rmq_ha.base.config.fields import key
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.model.topics import DELAY_LEVELS


@dataclass(slots=True, kw_only=True)
class MessageStoreConfig:
    """The store and replication keys of a broker properties file."""

    store_path_root_dir: str | None = key("storePathRootDir", None, "root directory")
    store_path_commit_log: str | None = key("storePathCommitLog", None, "CL directory (or list)")
    store_path_dledger_commit_log: str | None = key(
        "storePathDLedgerCommitLog", None, "DLedger data directory, or several, separated by ,"
    )
    read_only_commit_log_store_paths: str | None = key(
        "readOnlyCommitLogStorePaths", None, "further CL directories, read only"
    )
    mapped_file_size_commit_log: int = key("mappedFileSizeCommitLog", 1073741824, "CL file size")
    mapped_file_size_consume_queue: int = key(
        "mappedFileSizeConsumeQueue", 6000000, "CQ file size, rounded up to 20"
    )
    enable_consume_queue_ext: bool = key("enableConsumeQueueExt", False, "write CQ extension files")
    mapped_file_size_consume_queue_ext: int = key(
        "mappedFileSizeConsumeQueueExt", 50331648, "extension file size"
    )
    bit_map_length_consume_queue_ext: int = key(
        "bitMapLengthConsumeQueueExt", 64, "overwritten by the bloom filter's size"
    )
    flush_interval_commit_log: int = key(
        "flushIntervalCommitLog", 500, "ms between asynchronous flushes"
    )
    commit_interval_commit_log: int = key("commitIntervalCommitLog", 200, "ms between pool commits")
    use_reentrant_lock_when_put_message: bool = key(
        "useReentrantLockWhenPutMessage", True, "mutex instead of spin lock"
    )
    flush_commit_log_timed: bool = key(
        "flushCommitLogTimed", True, "fixed-rate flush instead of wake-up"
    )
    flush_interval_consume_queue: int = key(
        "flushIntervalConsumeQueue", 1000, "ms between CQ flushes"
    )
    clean_resource_interval: int = key("cleanResourceInterval", 10000, "ms between cleaning rounds")
    delete_commit_log_files_interval: int = key(
        "deleteCommitLogFilesInterval", 100, "ms between CL file deletions"
    )
    delete_consume_queue_files_interval: int = key(
        "deleteConsumeQueueFilesInterval", 100, "ms pause after deleting CQ files of a queue"
    )
    destroy_maped_file_interval_forcibly: int = key(
        "destroyMapedFileIntervalForcibly", 120000, "ms until a held file is unmapped by force"
    )
    redelete_hanged_file_interval: int = key(
        "redeleteHangedFileInterval", 120000, "ms between retries for a held first file"
    )
    delete_when: str = key("deleteWhen", "04", "hours of expiry deletion, ;-separated")
    disk_max_used_space_ratio: int = key(
        "diskMaxUsedSpaceRatio", 75, "% that starts deletion, clamped 10…95"
    )
    file_reserved_time: int = key("fileReservedTime", 72, "hours a CL file is kept")
    put_msg_index_hight_water: int = key("putMsgIndexHightWater", 600000, "unused")
    max_message_size: int = key("maxMessageSize", 4194304, "max stored body / batch payload")
    check_crcon_recover: bool = key("checkCRCOnRecover", True, "CRC check during recovery")
    flush_commit_log_least_pages: int = key(
        "flushCommitLogLeastPages", 4, "dirty 4-KiB pages that trigger a flush"
    )
    commit_commit_log_least_pages: int = key(
        "commitCommitLogLeastPages", 4, "the same for pool commits"
    )
    flush_least_pages_when_warm_maped_file: int = key(
        "flushLeastPagesWhenWarmMapedFile", 4096, "force step while warming"
    )
    flush_consume_queue_least_pages: int = key(
        "flushConsumeQueueLeastPages", 2, "dirty pages for a CQ flush"
    )
    flush_commit_log_thorough_interval: int = key(
        "flushCommitLogThoroughInterval", 10000, "ms after which any dirt is flushed"
    )
    commit_commit_log_thorough_interval: int = key(
        "commitCommitLogThoroughInterval", 200, "the same for pool commits"
    )
    flush_consume_queue_thorough_interval: int = key(
        "flushConsumeQueueThoroughInterval", 60000, "the same for CQs, and checkpoint"
    )
    max_transfer_bytes_on_message_in_memory: int = key(
        "maxTransferBytesOnMessageInMemory", 262144, "store.md §8.2"
    )
    max_transfer_count_on_message_in_memory: int = key(
        "maxTransferCountOnMessageInMemory", 32, "store.md §8.2"
    )
    max_transfer_bytes_on_message_in_disk: int = key(
        "maxTransferBytesOnMessageInDisk", 65536, "store.md §8.2"
    )
    max_transfer_count_on_message_in_disk: int = key(
        "maxTransferCountOnMessageInDisk", 8, "store.md §8.2"
    )
    access_message_in_memory_max_ratio: int = key(
        "accessMessageInMemoryMaxRatio", 40, "% of RAM regarded as page cache"
    )
    message_index_enable: bool = key("messageIndexEnable", True, "build the index")
    max_hash_slot_num: int = key("maxHashSlotNum", 5000000, "index slots")
    max_index_num: int = key("maxIndexNum", 20000000, "index items")
    max_msgs_num_batch: int = key("maxMsgsNumBatch", 64, "max results of a key query")
    message_index_safe: bool = key("messageIndexSafe", False, "recovery also covers the index")
    ha_listen_port: int = key("haListenPort", 10912, "overwritten with listenPort + 1")
    ha_send_heartbeat_interval: int = key(
        "haSendHeartbeatInterval", 5000, "ms, HA heartbeat both ways"
    )
    ha_housekeeping_interval: int = key(
        "haHousekeepingInterval", 20000, "ms without HA data → close"
    )
    ha_transfer_batch_size: int = key("haTransferBatchSize", 32768, "max bytes per HA frame")
    ha_master_address: str | None = key("haMasterAddress", None, "fixed HA address for a slave")
    ha_slave_fallbehind_max: int = key(
        "haSlaveFallbehindMax", 268435456, "bytes of lag up to which a slave counts"
    )
    broker_role: BrokerRole = key("brokerRole", BrokerRole.ASYNC_MASTER, "role")
    flush_disk_type: FlushDiskType = key("flushDiskType", FlushDiskType.ASYNC_FLUSH, "flush mode")
    sync_flush_timeout: int = key("syncFlushTimeout", 5000, "ms, SYNC_FLUSH deadline")
    slave_timeout: int = key("slaveTimeout", 3000, "ms, replication deadline")
    message_delay_level: str = key(
        "messageDelayLevel",
        DELAY_LEVELS,
        "delay levels",
    )
    flush_delay_offset_interval: int = key(
        "flushDelayOffsetInterval", 10000, "ms between delayOffset.json writes"
    )
    clean_file_forcibly_enable: bool = key(
        "cleanFileForciblyEnable", True, "allow deletion before expiry"
    )
    warm_maped_file_enable: bool = key("warmMapedFileEnable", False, "touch and lock new CL files")
    offset_check_in_slave: bool = key(
        "offsetCheckInSlave", False, "slaves and masters without a lease correct consumer offsets"
    )
    debug_lock_enable: bool = key(
        "debugLockEnable", False, "stack dumps when the put lock is held long"
    )
    duplication_enable: bool = key("duplicationEnable", False, "breaks dispatch (store.md §5.4)")
    disk_fall_recorded: bool = key("diskFallRecorded", True, "statistics of consumer lag in bytes")
    os_page_cache_busy_time_out_mills: int = key(
        "osPageCacheBusyTimeOutMills", 1000, "ms of lock time that means 'busy'"
    )
    default_query_max_num: int = key("defaultQueryMaxNum", 32, "results of a unique-key query")
    transient_store_pool_enable: bool = key(
        "transientStorePoolEnable", False, "off-heap write pool"
    )
    transient_store_pool_size: int = key("transientStorePoolSize", 5, "number of buffers")
    fast_fail_if_no_buffer_in_store_pool: bool = key(
        "fastFailIfNoBufferInStorePool", False, "fail instead of waiting for a buffer"
    )
    enable_dleger_commit_log: bool = key(
        "enableDLegerCommitLog", False, "the commit log is that of a DLedger (Raft) group"
    )
    dleger_group: str | None = key(
        "dLegerGroup", None, "name of the group; all members say the same"
    )
    dleger_peers: str | None = key(
        "dLegerPeers", None, "all members, this one too: n0-host:port;n1-host:port;..."
    )
    dleger_self_id: str | None = key("dLegerSelfId", None, "which of dLegerPeers this broker is")
    preferred_leader_id: str | None = key(
        "preferredLeaderId", None, "members that should lead: n0;n1"
    )
    enable_batch_push: bool = key(
        "enableBatchPush", False, "a DLedger leader pushes several entries per request"
    )
    enable_schedule_message_stats: bool = key(
        "enableScheduleMessageStats", True, "statistics for delayed delivery"
    )
    enable_lmq: bool = key("enableLmq", False, "store.md §3.7")
    enable_multi_dispatch: bool = key("enableMultiDispatch", False, "store.md §3.7")
    max_lmq_consume_queue_num: int = key(
        "maxLmqConsumeQueueNum", 20000, "limit; only reads are refused above it"
    )
    enable_schedule_async_deliver: bool = key("enableScheduleAsyncDeliver", False, "store.md §10.3")
    schedule_async_deliver_max_pending_limit: int = key(
        "scheduleAsyncDeliverMaxPendingLimit", 2000, "store.md §10.3"
    )
    schedule_async_deliver_max_resend_num2_blocked: int = key(
        "scheduleAsyncDeliverMaxResendNum2Blocked", 3, "store.md §10.3"
    )
