"""The keys that only rmq-ha knows; RocketMQ's Java broker ignores them."""

from dataclasses import dataclass

from rmq_ha.base.config.fields import EMBEDDED_NAMESRV, Local, key_of_5, own_key
from rmq_ha.base.config.grpc_keys import GrpcConfig
from rmq_ha.base.config.text_rules import HOSTS, NETWORKS, SECRET
from rmq_ha.base.model.host_port import MOST_PORT
from rmq_ha.base.model.numbers import MOST_ITEMS


@dataclass(slots=True, kw_only=True)
class RmqHaConfig(GrpcConfig):
    """Extension points by name, and the settings by which rmq-ha differs from 4.9.7 on purpose."""

    journal_plug_in: str = own_key(
        "journalPlugIn",
        "",
        "The name of the plugin (IJournalPlugin) that keeps the messages. Empty: RocketMQ's "
        "commit log; with enableDLegerCommitLog=true a DLedger log; with "
        "enableControllerMode=true the log of controller mode.",
        local=Local.CODE,
    )
    dispatcher_plug_in: str = own_key(
        "dispatcherPlugIn",
        "",
        "The names of plugins that are told of every record in the commit log "
        "(ICommitLogDispatcher), separated by commas.",
        local=Local.CODE,
    )
    hook_plug_in: str = own_key(
        "hookPlugIn",
        "",
        "The names of plugins that are called when clients send and consume messages, separated "
        "by commas. The broker calls them in this order.",
        local=Local.CODE,
    )
    acl_plug_in: str = own_key(
        "aclPlugIn",
        "",
        "The names of plugins that check requests, separated by commas. Empty: with "
        "aclEnable=true the plugin plain, which reads plain_acl.yml; otherwise none.",
        local=Local.ACCESS,
    )
    acl_strict: bool = own_key(
        "aclStrict",
        True,
        "true: with aclEnable=true, every request needs the permission that the table in "
        "docs/security.md names. false: only the requests that RocketMQ 4.9.7 checks need one, so "
        "any account can read any message and settle any transaction.",
        local=Local.ACCESS,
    )
    acl_access_key: str = own_key(
        "aclAccessKey",
        "",
        "The access key of the account with which this broker signs its own requests, for "
        "example those of a slave to its master. Set it where masters, name servers or "
        "controllers have aclEnable=true. The account has to be an admin's.",
        local=Local.ACCESS,
    )
    acl_secret_key: str = own_key(
        "aclSecretKey",
        "",
        "The secret key of the account in aclAccessKey.",
        local=Local.ACCESS,
        secret=True,
    )
    verify_log_at_start: bool = own_key(
        "verifyLogAtStart",
        False,
        "Where a start begins to check the commit log. false: at the last message that is surely "
        "on the disk, so the start is quick. true, as RocketMQ: after a clean stop it reads the "
        "last three files of the log; after lost power it reads from the times in the checkpoint "
        "on. keepDamagedLog says what happens if a record is damaged.",
    )
    trust_page_cache_after_kill: bool = own_key(
        "trustPageCacheAfterKill",
        True,
        "true: after a kill of the process, a start goes on where queues and index end, if the "
        "machine was not rebooted, because all written bytes are in its page cache. false: the "
        "start reads the log from the checkpoint on, as after lost power. Set false if the store "
        "is on a network file system.",
    )
    keep_damaged_log: bool = own_key(
        "keepDamagedLog",
        True,
        "true: a master does not start if its commit log is damaged and whole messages follow the "
        "damage. false, for one start: the log is cut at the damage, and the rest is kept below "
        "storePathRootDir/setaside. A slave cuts its log in either case and fetches the rest from "
        "its master. It does not start as a master before it has the rest.",
    )
    start_without_commit_log: bool = own_key(
        "startWithoutCommitLog",
        False,
        "false: a broker does not start if it finds no commit log, but queues or a checkpoint, "
        "because a disk may not be mounted. true, for one start: it begins with an empty commit "
        "log, and keeps the old queues and index below storePathRootDir/setaside.",
    )
    check_crc_on_read: bool = own_key(
        "checkCRCOnRead",
        False,
        "true: the broker checks the CRC of each message's body before it hands the message to a "
        "consumer, and leaves out a damaged one. This costs processor time for each message. "
        "false: it checks only the size, the place and the structure of the record.",
    )
    duplicate_window_millis: int = own_key(
        "duplicateWindowMillis",
        0,
        "Stores a message once although its producer sends it several times. If a message with "
        "the same topic and UNIQ_KEY was stored within this time, ms, the broker repeats its "
        "first answer. 0: each send is stored, as with RocketMQ. Needs messageIndexEnable=true.",
    )
    keep_offsets_of_deleted_topics: bool = own_key(
        "keepOffsetsOfDeletedTopics",
        False,
        "false: a topic's deletion also deletes the offsets of its consumer groups. true, as "
        "RocketMQ: the groups keep these offsets. If the topic is made again, a group skips "
        "messages until its old offset is reached.",
    )
    check_committed_offsets: bool = own_key(
        "checkCommittedOffsets",
        True,
        "true: the broker takes a group's committed offset only for a queue that the topic has, "
        "and from 0 to the end of the queue. A broker that becomes the master sets a larger "
        "offset to the end. false, as RocketMQ: every offset is stored, and a group with too "
        "large an offset skips messages.",
    )
    refuse_unserved_properties: bool = own_key(
        "refuseUnservedProperties",
        True,
        "true: refuse messages whose properties of RocketMQ 5 this broker does not act on. A "
        "priority or a lite topic is refused with code 13; a timer, if timerWheelEnable=false, "
        "with code 1. false, as RocketMQ 4.9: store such messages and deliver them at once.",
        mutable=True,
    )
    time_search_nearest: bool = own_key(
        "timeSearchNearest",
        False,
        "Which message answers a search by time, a reset of a group to a time, or a consumer that "
        "begins at a time. false, as RocketMQ 5: the first message that was stored at that time or "
        "later. true, as RocketMQ 4.9: the message that was stored nearest to that time.",
        mutable=True,
    )
    slave_drops_deleted_topics: bool = own_key(
        "slaveDropsDeletedTopics",
        True,
        "true: a slave deletes the queues of a topic one minute after its master has deleted the "
        "topic. The messages stay in the commit log. false, as RocketMQ: the queues stay on the "
        "slave.",
    )
    slave_alone_seconds: int = own_key(
        "slaveAloneSeconds",
        0,
        "After how many seconds without a master (DLedger: without a leader) a broker answers "
        "/healthz with 503. 0: never, because consumers can still read from a slave while its "
        "master is dead.",
    )
    ha_transfer_batch_max: int = own_key(
        "haTransferBatchMax",
        262144,
        "The most bytes of the commit log that a master sends to a slave in one frame, if the "
        "file does not set haTransferBatchSize. Keep it well below 4 MiB beside a Java slave, "
        "whose receive buffer has that size.",
        least=1,
        mutable=True,
    )
    ha_max_slaves: int = own_key(
        "haMaxSlaves",
        32,
        "The most connections to the replication port. If there are more, the broker closes one "
        "connection of the machine that has the most.",
        least=1,
        mutable=True,
    )
    ha_set_aside_diverged_tail: bool = own_key(
        "haSetAsideDivergedTail",
        True,
        "What a slave does if the end of its log differs from its master's log. true: it moves "
        "that end into storePathRootDir/setaside and copies the master's bytes. false: it changes "
        "nothing and does not follow the master.",
    )
    ha_refetch_stranded_store: bool = own_key(
        "haRefetchStrandedStore",
        True,
        "In controller mode: what a slave does if its master has already deleted the messages "
        "that the slave needs next. true: it moves its log into a folder below setaside and "
        "copies the whole log of the master. false: it changes nothing and does not follow.",
    )
    ha_refetch_stranded_pair: bool = own_key(
        "haRefetchStrandedPair",
        False,
        "The same as haRefetchStrandedStore, for a slave of a pair without controllers. The "
        "default is false because no election names the master of a pair. With true, the slave "
        "replaces its log by that of any master that its file or its name servers name.",
    )
    ha_allowed_slaves: str = own_key(
        "haAllowedSlaves",
        "",
        "The addresses and networks, separated by commas, from which slaves may replicate from "
        "this broker. Empty, as RocketMQ: every machine that reaches the replication port gets "
        "all messages, and its acknowledgements count.",
        rule=NETWORKS,
        local=Local.ACCESS,
    )
    ha_secret: str = own_key(
        "haSecret",
        "",
        "A secret that master and slaves share, at least 16 characters. If a master asks for a "
        "proof (haSecretRequired=true), a slave proves that it knows the secret, and leaves a "
        "master that does not. Brokers of RocketMQ cannot do so.",
        rule=SECRET,
        local=Local.ACCESS,
        secret=True,
    )
    ha_secret_file: str | None = own_key(
        "haSecretFile",
        None,
        "A file with one secret a line, in place of haSecret. The broker proves itself with the "
        "first secret and accepts all of them, so a secret can be changed broker by broker. It "
        "reads a changed file without a restart.",
        local=Local.ACCESS,
    )
    ha_secret_required: bool = own_key(
        "haSecretRequired",
        False,
        "true: a slave that does not prove that it knows haSecret gets no messages, and this "
        "broker follows no master without that proof. false: RocketMQ's slaves and masters are "
        "accepted, which cannot prove anything.",
        local=Local.ACCESS,
    )
    ha_trusted_masters: str = own_key(
        "haTrustedMasters",
        "",
        "The masters that a slave may follow and send its signed requests to: addresses, "
        "networks, or names as the master registers them, separated by commas. Empty, as "
        "RocketMQ: any master that a name server, or in controller mode a controller, names. The "
        "slave follows haMasterAddress in any case.",
        rule=HOSTS,
        local=Local.ACCESS,
    )
    ha_first_offset_max: int = own_key(
        "haFirstOffsetMax",
        1 << 56,
        "The largest offset at which a slave with an empty log begins. It protects a new slave "
        "from a master that names an impossible offset.",
        is_long=True,
        local=Local.ACCESS,
    )
    ha_hand_over_when_full: bool = own_key(
        "haHandOverWhenFull",
        True,
        "In controller mode: what a master does if its disk is full or fails. true: it has a slave "
        "elected that has the whole log and more room. false, as RocketMQ: it stays the master "
        "and refuses messages.",
    )
    forward_after_handover_seconds: int = own_key(
        "forwardAfterHandoverSeconds",
        60,
        "For how many seconds a former master passes requests of its clients on to the new "
        "master, after a hand-over or an election. Clients ask for routes every 30 s. 0, as "
        "RocketMQ: not at all; a slave refuses sends.",
        most=3600,
    )
    ha_hand_over_at_stop_seconds: int = own_key(
        "haHandOverAtStopSeconds",
        10,
        "In controller mode: for how many seconds at most a master that was told to stop goes on, "
        "until a slave in sync has all messages, is elected and leads. It takes no messages "
        "meanwhile. 0, as RocketMQ: it stops, and the controllers have to notice.",
        most=3600,
        mutable=True,
    )
    ha_cut_confirmed_to: int = own_key(
        "haCutConfirmedTo",
        -1,
        "In controller mode: whether a slave may cut confirmed messages off its log because the "
        "elected master lacks them. -1: no; the slave does not follow, and waits for an operator. "
        "An offset of the log: yes, down to this offset. 0, as RocketMQ: always.",
        least=-1,
        is_long=True,
        local=Local.ACCESS,
    )
    embedded_namesrv_port: int = own_key(
        "embeddedNamesrvPort",
        9876,
        "The port of the name server that a master runs in its own process if it has no "
        "namesrvAddr. 0: any free port.",
        most=MOST_PORT,
        local=Local.LISTENS,
        needs=EMBEDDED_NAMESRV,
    )
    embedded_namesrv_address: str = own_key(
        "embeddedNamesrvAddress",
        "",
        "The address on which the embedded name server listens. Empty: bindAddress, or 127.0.0.1 "
        "if that is empty, so that no other machine can register brokers. 0.0.0.0: all addresses.",
        local=Local.LISTENS,
        resolved=True,
        needs=EMBEDDED_NAMESRV,
    )
    enable_controller_in_namesrv: bool = key_of_5(
        "enableControllerInNamesrv",
        False,
        "true: the broker's process also runs a name server, even if namesrvAddr is set, and a "
        "controller. The controller listens on its own port in controllerDLegerPeers. Its keys "
        "are in the same properties file.",
        local=Local.LISTENS,
    )
    namesrv_allowed_brokers: str = own_key(
        "namesrvAllowedBrokers",
        "",
        "The addresses and networks, separated by commas, from which other brokers may register "
        "at the embedded name server. Empty: every address that can reach it.",
        rule=NETWORKS,
        local=Local.ACCESS,
        needs=EMBEDDED_NAMESRV,
    )
    metrics_series_limit: int = own_key(
        "metricsSeriesLimit",
        200,
        "How many topics have metrics of their own, and how many pairs of topic and group. The "
        "limit protects Prometheus from too many series. rmqha_series_left_out counts the rest.",
        most=100000,
    )
    page_history_days: int = own_key(
        "pageHistoryDays",
        30,
        "For how many days the broker keeps the plots of its page below storePathRootDir/page, in "
        "a file of 128 KiB at most. 0: it writes no file, and each start begins with empty plots.",
        most=30,
    )
    max_messages_per_batch: int = own_key(
        "maxMessagesPerBatch",
        20000,
        "The most messages in one batch. A larger batch is refused with code 13.",
        least=1,
    )
    max_groups_per_heartbeat: int = own_key(
        "maxGroupsPerHeartbeat",
        300,
        "The most consumer and producer groups in one heartbeat of a client. A larger heartbeat "
        "is refused.",
        least=1,
        most=MOST_ITEMS,
    )
    max_subscriptions_per_heartbeat: int = own_key(
        "maxSubscriptionsPerHeartbeat",
        2000,
        "The most subscriptions of all groups in one heartbeat of a client. A larger heartbeat is "
        "refused.",
        least=1,
        most=MOST_ITEMS,
    )
    max_filter_characters_per_heartbeat: int = own_key(
        "maxFilterCharactersPerHeartbeat",
        32768,
        "The most characters of all SQL92 expressions in one heartbeat of a client. A larger "
        "heartbeat is refused.",
        least=1,
    )
    max_topics: int = own_key(
        "maxTopics",
        50000,
        "How many topics there may be before a send to an unknown topic creates no more. An "
        "operator's request still creates topics.",
        least=1,
    )
    max_groups: int = own_key(
        "maxGroups",
        50000,
        "How many consumer groups there may be before requests of clients create no more. An "
        "operator's request still creates groups.",
        least=1,
    )
    max_queues_per_lock: int = own_key(
        "maxQueuesPerLock",
        1500,
        "The most queues that an ordered consumer may lock or unlock with one request. A larger "
        "request is refused.",
        least=1,
        most=MOST_ITEMS,
    )
    lock_max_live_time: int = own_key(
        "lockMaxLiveTime",
        60000,
        "For how many ms an ordered consumer keeps its lock on a queue without renewing it. After "
        "that, another client may lock the queue. In RocketMQ this is the system property "
        "rocketmq.broker.rebalance.lockMaxLiveTime.",
        least=1000,
    )
    lock_max_live_time_without_connection: int = own_key(
        "lockMaxLiveTimeWithoutConnection",
        30000,
        "The same as lockMaxLiveTime, ms, once the client's connection is closed. By then a client "
        "of RocketMQ takes the lock for lost itself, so a longer time only delays the next "
        "consumer. 60000: as RocketMQ.",
    )
    disk_space_warning_level_ratio: int = own_key(
        "diskSpaceWarningLevelRatio",
        90,
        "Above how many percent of used disk the broker refuses messages. In RocketMQ this is "
        "the system property rocketmq.broker.diskSpaceWarningLevelRatio.",
        least=35,
        most=99,
    )
    disk_space_clean_forcibly_ratio: int = own_key(
        "diskSpaceCleanForciblyRatio",
        85,
        "Above how many percent of used disk the broker deletes files before they expire, if "
        "cleanFileForciblyEnable=true. In RocketMQ this is the system property "
        "rocketmq.broker.diskSpaceCleanForciblyRatio.",
        least=30,
        most=95,
    )
    offset_moved_event_interval: int = own_key(
        "offsetMovedEventInterval",
        60000,
        "If a group pulls from beyond the end of a queue again and again, the broker writes at "
        "most one log line and one message to OFFSET_MOVED_EVENT within this time, ms. It counts "
        "for each group and queue. 0, as RocketMQ: one for each pull.",
    )
    start_beside_another_master: bool = own_key(
        "startBesideAnotherMaster",
        False,
        "false: a master of a pair asks whether another broker of its brokerName leads. If one "
        "does, it takes no messages until its next start. true, as RocketMQ: it does not ask, and "
        "two masters may take messages at the same time.",
    )
    dledger_commit_own_term_only: bool = own_key(
        "dLegerCommitOwnTermOnly",
        True,
        "true: a new DLedger leader writes an entry of its own term to the topic "
        "RMQ_SYS_DLEDGER_TERM, and commits older entries together with it. This mends the fault in "
        "figure 8 of the Raft paper. false, as RocketMQ 4.9.7: a committed entry may be lost.",
        needs="enableDLegerCommitLog",
    )
    dledger_hand_over_when_full: bool = own_key(
        "dLegerHandOverWhenFull",
        True,
        "What a DLedger leader does if its disk is full or refuses entries, or if it would have to "
        "delete files before they expire. true: it hands over to a member that has all entries "
        "and more room. false, as RocketMQ 4.9.7: it stays the leader.",
        needs="enableDLegerCommitLog",
    )
    dledger_sticky_leader: int = own_key(
        "dLegerStickyLeader",
        0,
        "For how many ms after a sign of the DLedger leader a member refuses its vote to a "
        "candidate of a larger term. Set it to 4000 in an unstable network, if all members are of "
        "rmq-ha: a member that was cut off then does not depose the leader. 0, as RocketMQ: never.",
        needs="enableDLegerCommitLog",
    )
    dledger_push_batch_size: int = own_key(
        "dLegerPushBatchSize",
        262144,
        "The most bytes of entries that a DLedger leader sends to a member in one request. The "
        "leader does not wait for more entries. Members of RocketMQ 4.8 and later accept this. "
        "0, as RocketMQ 4.9.7: enableBatchPush decides.",
        most=4194304,
        needs="enableDLegerCommitLog",
    )
    dledger_operator_hosts: str = own_key(
        "dLegerOperatorHosts",
        "",
        "The addresses and networks, separated by commas, from which operators may read entries "
        "and move the leadership at the DLedger port. This machine and the members always may. "
        "An asterisk, as RocketMQ 4.9.7: everybody may.",
        rule=NETWORKS,
        local=Local.ACCESS,
        needs="enableDLegerCommitLog",
    )
    dledger_peer_hosts: str = own_key(
        "dLegerPeerHosts",
        "",
        "Further addresses and networks, separated by commas, from which members connect that "
        "have another address in dLegerPeers, for example behind NAT. Each of them may speak for "
        "any member. An asterisk, as RocketMQ 4.9.7: every address may.",
        rule=NETWORKS,
        local=Local.ACCESS,
        needs="enableDLegerCommitLog",
    )
