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
        "The root directory of the store. Empty: the folder store in the home directory of the "
        "user.",
        rule=ONE_DIRECTORY,
        local=Local.FILES,
    )
    store_path_commit_log: str | None = key(
        "storePathCommitLog",
        None,
        "The directory of the commit log, for example on another disk. Empty: the folder "
        "commitlog in storePathRootDir.",
        rule=ONE_DIRECTORY,
        local=Local.FILES,
    )
    store_path_dledger_commit_log: str | None = key(
        "storePathDLedgerCommitLog",
        None,
        "The directories of the DLedger log, separated by commas. Empty: below storePathRootDir.",
        local=Local.FILES,
        needs="enableDLegerCommitLog",
    )
    mapped_file_size_commit_log: int = key(
        "mappedFileSizeCommitLog",
        1073741824,
        "The size of one commit log file, bytes. The log is deleted file by file, so a smaller "
        "file frees the disk sooner. A message cannot be larger than a file.",
        least=4096,
        same_in_set=True,
    )
    mapped_file_size_consume_queue: int = key(
        "mappedFileSizeConsumeQueue",
        6000000,
        "The size of one consume queue file, bytes, rounded up to a multiple of 20, the size of "
        "one entry. Do not change it for an existing store.",
        least=20,
    )
    enable_consume_queue_ext: bool = key(
        "enableConsumeQueueExt",
        False,
        "true: write the extension files of consume queues, which enableCalcFilterBitMap needs.",
    )
    mapped_file_size_consume_queue_ext: int = key(
        "mappedFileSizeConsumeQueueExt",
        50331648,
        "The size of one extension file of a consume queue, bytes. Do not change it for an "
        "existing store.",
        least=1,
    )
    flush_interval_commit_log: int = key(
        "flushIntervalCommitLog",
        500,
        "With ASYNC_FLUSH: how often the broker looks whether the commit log has to be flushed, "
        "ms.",
        least=1,
        mutable=True,
    )
    flush_interval_consume_queue: int = key(
        "flushIntervalConsumeQueue",
        1000,
        "How soon after new entries the consume queues are flushed for the first time, ms; then "
        "flushConsumeQueueThoroughInterval counts.",
        least=1,
        mutable=True,
    )
    clean_resource_interval: int = key(
        "cleanResourceInterval",
        10000,
        "How often the broker looks for files to delete, ms. Values below 100 count as 100.",
        least=1,
    )
    delete_when: str = key(
        "deleteWhen",
        "04",
        "The hours of the day, from 00 to 23, at which expired files are deleted.",
        rule=HOURS,
        mutable=True,
        same_in_set=True,
    )
    disk_max_used_space_ratio: int = key(
        "diskMaxUsedSpaceRatio",
        75,
        "Above how many percent of used disk expired files are deleted at any hour. Values "
        "below 10 count as 10, and values above 95 as 95.",
        most=100,
        mutable=True,
    )
    file_reserved_time: int = key(
        "fileReservedTime",
        72,
        "For how many hours a commit log file is kept after it was last written. Consumers that "
        "lag further behind lose messages.",
        mutable=True,
        same_in_set=True,
    )
    max_message_size: int = key(
        "maxMessageSize",
        4194304,
        "The size of the largest message or batch, bytes. A larger one is refused.",
        least=1,
        mutable=True,
        same_in_set=True,
    )
    check_crcon_recover: bool = key(
        "checkCRCOnRecover",
        True,
        "true: check the CRC of each message that a start reads. false: the start is quicker, "
        "and a damaged body is not noticed.",
    )
    flush_commit_log_least_pages: int = key(
        "flushCommitLogLeastPages",
        4,
        "With ASYNC_FLUSH: the broker flushes once this many pages of 4 KiB wait. See "
        "flushCommitLogThoroughInterval.",
        mutable=True,
    )
    flush_commit_log_thorough_interval: int = key(
        "flushCommitLogThoroughInterval",
        10000,
        "With ASYNC_FLUSH: after how many ms the broker flushes although fewer pages than "
        "flushCommitLogLeastPages wait.",
        mutable=True,
    )
    flush_consume_queue_thorough_interval: int = key(
        "flushConsumeQueueThoroughInterval",
        60000,
        "How often all consume queues and the checkpoint are flushed, ms. A start after lost "
        "power has to read the log since the last time.",
        mutable=True,
    )
    max_transfer_bytes_on_message_in_memory: int = key(
        "maxTransferBytesOnMessageInMemory",
        262144,
        "The most bytes in the answer to one pull of recent messages. "
        "accessMessageInMemoryMaxRatio says which messages are recent.",
        least=1,
        mutable=True,
    )
    max_transfer_count_on_message_in_memory: int = key(
        "maxTransferCountOnMessageInMemory",
        32,
        "The most messages in the answer to one pull of recent messages. "
        "accessMessageInMemoryMaxRatio says which messages are recent.",
        least=1,
        mutable=True,
    )
    max_transfer_bytes_on_message_in_disk: int = key(
        "maxTransferBytesOnMessageInDisk",
        65536,
        "The most bytes in the answer to one pull of old messages, which may have to be read "
        "from the disk.",
        least=1,
        mutable=True,
    )
    max_transfer_count_on_message_in_disk: int = key(
        "maxTransferCountOnMessageInDisk",
        8,
        "The most messages in the answer to one pull of old messages, which may have to be read "
        "from the disk.",
        least=1,
        mutable=True,
    )
    access_message_in_memory_max_ratio: int = key(
        "accessMessageInMemoryMaxRatio",
        40,
        "A message counts as recent if no more bytes of the log follow it than this percentage "
        "of the machine's memory. Older messages may have to be read from the disk.",
        most=100,
        mutable=True,
    )
    message_index_enable: bool = key(
        "messageIndexEnable",
        True,
        "true: build the index, in which messages are found by key and by unique id.",
    )
    max_hash_slot_num: int = key(
        "maxHashSlotNum",
        5000000,
        "The number of hash slots in one index file. Do not change it for an existing store.",
        least=1,
        most=268435456,
    )
    max_index_num: int = key(
        "maxIndexNum",
        20000000,
        "The number of entries in one index file. Do not change it for an existing store.",
        least=2,
        most=100000000,
    )
    max_msgs_num_batch: int = key(
        "maxMsgsNumBatch",
        64,
        "The most messages in the answer to a search by key.",
        least=1,
        mutable=True,
    )
    message_index_safe: bool = key(
        "messageIndexSafe",
        False,
        "true: after a crash, a start reads the log from where the last full index file ends, "
        "so that queries by key find every message. false, as RocketMQ: the start is quicker, "
        "and the index may lack messages.",
    )
    ha_listen_port: int = key(
        "haListenPort",
        10912,
        "The port to which slaves connect. The start always sets it to listenPort + 1.",
        most=MOST_PORT,
        local=Local.LISTENS,
    )
    ha_send_heartbeat_interval: int = key(
        "haSendHeartbeatInterval",
        5000,
        "After how many ms without data master and slave send each other a heartbeat.",
        least=1,
        mutable=True,
    )
    ha_housekeeping_interval: int = key(
        "haHousekeepingInterval",
        20000,
        "After how many ms without data from the other side master and slave close their "
        "connection.",
        least=1,
        mutable=True,
    )
    ha_transfer_batch_size: int = key(
        "haTransferBatchSize",
        32768,
        "The most bytes of the commit log that a master sends to a slave in one frame. If the "
        "file does not set the key, haTransferBatchMax counts.",
        least=1,
        mutable=True,
    )
    ha_master_address: str | None = key(
        "haMasterAddress",
        None,
        "On a slave: the address of the master's replication port. Empty: the slave asks the "
        "name servers.",
        rule=ADDRESS,
        local=Local.SENDS,
        dialled=True,
    )
    ha_slave_fallbehind_max: int = key(
        "haSlaveFallbehindMax",
        268435456,
        "On a SYNC_MASTER: if every slave lags by this many bytes or more, a put waits for none "
        "of them. It is answered with SLAVE_NOT_AVAILABLE, although it is stored.",
        least=1,
        mutable=True,
    )
    broker_role: BrokerRole = key(
        "brokerRole",
        BrokerRole.ASYNC_MASTER,
        "ASYNC_MASTER: a put does not wait for slaves. SYNC_MASTER: a put waits until one slave "
        "has the message. SLAVE: the broker copies its master.",
        local=Local.IDENTITY,
    )
    flush_disk_type: FlushDiskType = key(
        "flushDiskType",
        FlushDiskType.ASYNC_FLUSH,
        "ASYNC_FLUSH: a put does not wait for the disk; a loss of power may lose the last "
        "messages. SYNC_FLUSH: a put waits until the message is on the disk.",
        same_in_set=True,
    )
    sync_flush_timeout: int = key(
        "syncFlushTimeout",
        5000,
        "With SYNC_FLUSH: for how many ms a put waits for the disk. Then it is answered with "
        "FLUSH_DISK_TIMEOUT, although it is stored.",
        least=1,
        mutable=True,
    )
    slave_timeout: int = key(
        "slaveTimeout",
        3000,
        "With SYNC_MASTER: for how many ms a put waits for a slave. Then it is answered with "
        "FLUSH_SLAVE_TIMEOUT, although it is stored. The default is as long as the time-out of "
        "clients; with 2000 the answer reaches them in time.",
        least=1,
        mutable=True,
    )
    message_delay_level: str = key(
        "messageDelayLevel",
        DELAY_LEVELS,
        "The delays of the levels 1, 2, 3 and so on. Producers choose a level and not a time, "
        "so the meaning of a level must not change.",
        rule=LEVELS,
        same_in_set=True,
    )
    flush_delay_offset_interval: int = key(
        "flushDelayOffsetInterval",
        10000,
        "How often the broker writes the progress of delayed messages to delayOffset.json, ms.",
        least=1,
        is_long=True,
    )
    clean_file_forcibly_enable: bool = key(
        "cleanFileForciblyEnable",
        True,
        "true: delete files before they expire while the disk is fuller than "
        "diskSpaceCleanForciblyRatio. false: keep them, and refuse messages above "
        "diskSpaceWarningLevelRatio.",
        mutable=True,
    )
    offset_check_in_slave: bool = key(
        "offsetCheckInSlave",
        False,
        "What a slave, or a master without a lease, answers to a pull beyond the end of a "
        "queue. false: the consumer asks again, because this broker may lack messages. true: "
        "the consumer's offset moves to that end.",
        mutable=True,
    )
    os_page_cache_busy_time_out_mills: int = key(
        "osPageCacheBusyTimeOutMills",
        1000,
        "If one write to the log takes longer than this, ms, the broker refuses sends with "
        "SYSTEM_BUSY for as long again.",
        is_long=True,
        mutable=True,
    )
    default_query_max_num: int = key(
        "defaultQueryMaxNum",
        32,
        "The most messages in the answer to a search by unique id.",
        least=1,
        mutable=True,
    )
    enable_dleger_commit_log: bool = key(
        "enableDLegerCommitLog",
        False,
        "true: a DLedger (Raft) group of brokers keeps the commit log and elects its leader.",
        local=Local.GROUP,
    )
    dleger_group: str | None = key(
        "dLegerGroup",
        None,
        "The name of the DLedger group. It is the same at all members.",
        local=Local.GROUP,
        needs="enableDLegerCommitLog",
    )
    dleger_peers: str | None = key(
        "dLegerPeers",
        None,
        "All members of the DLedger group, this one included: n0-host:port;n1-host:port.",
        local=Local.GROUP,
        needs="enableDLegerCommitLog",
    )
    dleger_self_id: str | None = key(
        "dLegerSelfId",
        None,
        "The id of this broker in dLegerPeers, for example n0.",
        local=Local.GROUP,
        needs="enableDLegerCommitLog",
    )
    preferred_leader_id: str | None = key(
        "preferredLeaderId",
        None,
        "The ids of the members that should lead, if they can: n0;n1. Empty: none is preferred.",
        local=Local.GROUP,
        needs="enableDLegerCommitLog",
    )
    enable_batch_push: bool = key(
        "enableBatchPush",
        False,
        "true: a DLedger leader sends several entries in one request, as RocketMQ does. It "
        "counts only with dLegerPushBatchSize=0.",
        needs="enableDLegerCommitLog",
    )
