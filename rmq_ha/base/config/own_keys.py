"""The keys that only rmq-ha knows; RocketMQ's Java broker ignores them."""

from dataclasses import dataclass

from rmq_ha.base.config.fields import EMBEDDED_NAMESRV, Local, key_of_5, own_key
from rmq_ha.base.config.pop_keys import PopConfig
from rmq_ha.base.config.text_rules import HOSTS, NETWORKS, SECRET
from rmq_ha.base.model.host_port import MOST_PORT
from rmq_ha.base.model.numbers import MOST_ITEMS


@dataclass(slots=True, kw_only=True)
class RmqHaConfig(PopConfig):
    """Extension points by name, and the settings by which rmq-ha differs from 4.9.7 on purpose."""

    journal_plug_in: str = own_key(
        "journalPlugIn",
        "",
        "IJournalPlugin that keeps the messages; empty: classic, or dledger or controller "
        "where enableDLegerCommitLog or enableControllerMode is true",
        local=Local.CODE,
    )
    dispatcher_plug_in: str = own_key(
        "dispatcherPlugIn",
        "",
        "extra ICommitLogDispatcher plugins, comma-separated",
        local=Local.CODE,
    )
    hook_plug_in: str = own_key(
        "hookPlugIn",
        "",
        "send and consume hook plugins, comma-separated, in this order",
        local=Local.CODE,
    )
    acl_plug_in: str = own_key(
        "aclPlugIn",
        "",
        "access validator plugins, comma-separated; with aclEnable=true: plain",
        local=Local.CODE,
    )
    acl_strict: bool = own_key(
        "aclStrict",
        True,
        "check every request by the table of permissions in docs/security.md; false: as "
        "4.9.7, which forgets most of them",
        local=Local.ACCESS,
    )
    acl_access_key: str = own_key(
        "aclAccessKey",
        "",
        "signs this broker's own requests, as a slave's to its master",
        local=Local.ACCESS,
    )
    acl_secret_key: str = own_key(
        "aclSecretKey", "", "belongs to aclAccessKey", local=Local.ACCESS, secret=True
    )
    verify_log_at_start: bool = own_key(
        "verifyLogAtStart",
        False,
        "after a clean stop, read the last three commit-log files up to the first damaged "
        "record, and after lost power from the checkpoint's times on, as RocketMQ does (see "
        "keepDamagedLog). false: begin at the last message that is surely on the disk",
    )
    trust_page_cache_after_kill: bool = own_key(
        "trustPageCacheAfterKill",
        True,
        "after a kill of the process, on the same boot of the machine, the start goes on where "
        "queues and index end, because all written bytes are in the page cache. false: it reads "
        "the log from the checkpoint on, as after lost power; for network file systems",
    )
    keep_damaged_log: bool = own_key(
        "keepDamagedLog",
        True,
        "a master whose commit log is damaged with whole messages behind the damage does not "
        "start; false, for one start: it is cut there, and the rest is set aside below "
        "storePathRootDir/setaside. A slave does so by itself, and fetches it anew; it does "
        "not start as a master before it has",
    )
    start_without_commit_log: bool = own_key(
        "startWithoutCommitLog",
        False,
        "true, for one start: begin with an empty commit log although queues or checkpoint "
        "know of another one; queues and index are set aside below storePathRootDir/setaside",
    )
    check_crc_on_read: bool = own_key(
        "checkCRCOnRead",
        False,
        "check the CRC of each body before it is handed out; false: size, place and parts of "
        "the record only",
    )
    duplicate_window_millis: int = own_key(
        "duplicateWindowMillis",
        0,
        "ms within which a send whose message (topic and UNIQ_KEY) is stored already is "
        "answered as the first one was, and not stored again; needs messageIndexEnable; 0: "
        "each send is stored, as with RocketMQ",
    )
    keep_offsets_of_deleted_topics: bool = own_key(
        "keepOffsetsOfDeletedTopics",
        False,
        "consumer groups keep their offsets on a topic that is deleted, as with RocketMQ, and "
        "skip what is put into it when it is made again",
    )
    check_committed_offsets: bool = own_key(
        "checkCommittedOffsets",
        True,
        "commit consumers' offsets only on queues that their topic has, from 0 to the queue's "
        "end; a broker that becomes the master sets larger ones to the end. false: every offset "
        "is stored for ever, and groups skip messages, as with RocketMQ",
    )
    refuse_unserved_properties: bool = own_key(
        "refuseUnservedProperties",
        True,
        "refuse messages with properties of RocketMQ 5 that nothing here acts on: a priority, a "
        "lite topic (code 13), and without timerWheelEnable a timer (code 1). false: store and "
        "deliver them at once, as RocketMQ 4.9 does",
        mutable=True,
    )
    time_search_nearest: bool = own_key(
        "timeSearchNearest",
        False,
        "answer searches by time, resets of groups and consumers that begin by time with the "
        "message that was stored nearest, as RocketMQ 4.9 does. false: with the first one that "
        "was stored then or later, as RocketMQ 5 does",
        mutable=True,
    )
    slave_drops_deleted_topics: bool = own_key(
        "slaveDropsDeletedTopics",
        True,
        "a slave deletes the queues of a topic a minute after its master has deleted it; the "
        "log keeps the messages",
    )
    slave_alone_seconds: int = own_key(
        "slaveAloneSeconds",
        0,
        "/healthz of a slave, or of a DLedger member, is 503 when it has followed nobody for "
        "so many seconds; 0: it stays 200, because consumers can still read from it while the "
        "master is dead",
    )
    ha_transfer_batch_max: int = own_key(
        "haTransferBatchMax",
        262144,
        "largest body of one HA frame while haTransferBatchSize is not set; a Java slave's "
        "receive buffer holds 4 MiB",
        least=1,
        mutable=True,
    )
    ha_max_slaves: int = own_key(
        "haMaxSlaves",
        32,
        "connections to the replication port; beyond it one of the machine with the most of "
        "them has to leave",
        least=1,
        mutable=True,
    )
    ha_set_aside_diverged_tail: bool = own_key(
        "haSetAsideDivergedTail",
        True,
        "a slave whose log holds at its end what its master's does not moves that into "
        "<storePathRootDir>/setaside and fetches the master's; false: it changes nothing and "
        "stays away from the master",
    )
    ha_refetch_stranded_store: bool = own_key(
        "haRefetchStrandedStore",
        True,
        "in controller mode: a slave that was away for longer than its master keeps messages "
        "moves its log into a folder below setaside and fetches all of the master's. false: it "
        "changes nothing and stays away",
    )
    ha_refetch_stranded_pair: bool = own_key(
        "haRefetchStrandedPair",
        False,
        "as haRefetchStrandedStore, for a slave of a pair without controllers, whose master "
        "nobody elected: the slave believes the master that its file or its name servers name",
    )
    ha_allowed_slaves: str = own_key(
        "haAllowedSlaves",
        "",
        "addresses and networks, comma-separated, that may replicate from this broker, whose "
        "acknowledgements count; empty: whoever reaches the port, as RocketMQ",
        rule=NETWORKS,
        local=Local.ACCESS,
    )
    ha_secret: str = own_key(
        "haSecret",
        "",
        "at least 16 characters that master and slaves of rmq-ha share: a slave answers with it "
        "when its master asks, and leaves a master that does not know it",
        rule=SECRET,
        local=Local.ACCESS,
        secret=True,
    )
    ha_secret_file: str | None = own_key(
        "haSecretFile",
        None,
        "instead of haSecret: a file with one secret a line, read again when it changes; the "
        "first is what this broker proves, all of them are believed",
        local=Local.ACCESS,
    )
    ha_secret_required: bool = own_key(
        "haSecretRequired",
        False,
        "whoever replicates from this broker has to know haSecret, and so has its master; "
        "false: only who is asked answers, and Java peers notice nothing",
        local=Local.ACCESS,
    )
    ha_trusted_masters: str = own_key(
        "haTrustedMasters",
        "",
        "hosts (addresses, networks, or names as the master registers them), comma-separated, "
        "of masters that a slave follows and sends its signed requests to; empty: whomever "
        "the name server, or in controller mode the controller, names, as RocketMQ. "
        "haMasterAddress is followed in any case",
        rule=HOSTS,
        local=Local.ACCESS,
    )
    ha_first_offset_max: int = own_key(
        "haFirstOffsetMax",
        1 << 56,
        "a slave with an empty log does not begin it beyond this offset, whatever its master says",
        is_long=True,
        local=Local.ACCESS,
    )
    ha_hand_over_when_full: bool = own_key(
        "haHandOverWhenFull",
        True,
        "in controller mode: a master whose disk is full or fails has a slave elected that "
        "has the whole log and room; false: it keeps its place and refuses messages, as "
        "RocketMQ",
    )
    ha_cut_confirmed_to: int = own_key(
        "haCutConfirmedTo",
        -1,
        "in controller mode: a slave gives up confirmed messages that the elected master "
        "lacks, down to this offset of the log; -1: it never does, and waits for an operator; "
        "0: it always does, as RocketMQ",
        least=-1,
        is_long=True,
        local=Local.ACCESS,
    )
    embedded_namesrv_port: int = own_key(
        "embeddedNamesrvPort",
        9876,
        "a master without namesrvAddr runs its own name server on this port; 0: any free one",
        most=MOST_PORT,
        local=Local.LISTENS,
        needs=EMBEDDED_NAMESRV,
    )
    embedded_namesrv_address: str = own_key(
        "embeddedNamesrvAddress",
        "",
        "interface of the embedded name server; empty: bindAddress, or 127.0.0.1 if that is "
        "empty; 0.0.0.0: all",
        local=Local.LISTENS,
        resolved=True,
        needs=EMBEDDED_NAMESRV,
    )
    enable_controller_in_namesrv: bool = key_of_5(
        "enableControllerInNamesrv",
        False,
        "run a name server in this process, also beside namesrvAddr, and a controller in it, "
        "on the own port of controllerDLegerPeers; a controller's keys stand beside these",
        local=Local.LISTENS,
    )
    namesrv_allowed_brokers: str = own_key(
        "namesrvAllowedBrokers",
        "",
        "addresses and networks, comma-separated, from which brokers register at the embedded "
        "name server, besides this one; empty: from wherever it can be reached",
        rule=NETWORKS,
        local=Local.ACCESS,
        needs=EMBEDDED_NAMESRV,
    )
    metrics_series_limit: int = own_key(
        "metricsSeriesLimit",
        200,
        "how many topics, and how many pairs of topic and group, have series of their own",
        most=100000,
    )
    max_messages_per_batch: int = own_key(
        "maxMessagesPerBatch", 20000, "members of a batch; more are refused with code 13", least=1
    )
    max_groups_per_heartbeat: int = own_key(
        "maxGroupsPerHeartbeat",
        300,
        "groups of consumers and producers in one heartbeat",
        least=1,
        most=MOST_ITEMS,
    )
    max_subscriptions_per_heartbeat: int = own_key(
        "maxSubscriptionsPerHeartbeat",
        2000,
        "subscriptions of all groups in one heartbeat",
        least=1,
        most=MOST_ITEMS,
    )
    max_filter_characters_per_heartbeat: int = own_key(
        "maxFilterCharactersPerHeartbeat",
        32768,
        "characters of all SQL92 expressions in one heartbeat",
        least=1,
    )
    max_topics: int = own_key(
        "maxTopics",
        50000,
        "topics that there may be before a send creates no more; an operator's request does",
        least=1,
    )
    max_groups: int = own_key(
        "maxGroups",
        50000,
        "consumer groups that there may be before clients create no more; an operator's "
        "request does",
        least=1,
    )
    max_queues_per_lock: int = own_key(
        "maxQueuesPerLock",
        1500,
        "queues that one request of an ordered consumer locks or unlocks",
        least=1,
        most=MOST_ITEMS,
    )
    lock_max_live_time: int = own_key(
        "lockMaxLiveTime",
        60000,
        "ms without renewal after which another client may lock an ordered consumer's queue; "
        "the system property rocketmq.broker.rebalance.lockMaxLiveTime",
        least=1000,
    )
    lock_max_live_time_without_connection: int = own_key(
        "lockMaxLiveTimeWithoutConnection",
        30000,
        "the same once the connection that renewed the lock is gone: by then its client takes "
        "the lock for lost itself (its rocketmq.client.rebalance.lockMaxLiveTime); 60000: as "
        "Java",
    )
    disk_space_warning_level_ratio: int = own_key(
        "diskSpaceWarningLevelRatio",
        90,
        "% of the disk above which puts are refused; Java's system property "
        "rocketmq.broker.diskSpaceWarningLevelRatio",
        least=35,
        most=99,
    )
    disk_space_clean_forcibly_ratio: int = own_key(
        "diskSpaceCleanForciblyRatio",
        85,
        "% of the disk above which files go before they expire (cleanFileForciblyEnable); "
        "Java's system property rocketmq.broker.diskSpaceCleanForciblyRatio",
        least=30,
        most=95,
    )
    offset_moved_event_interval: int = own_key(
        "offsetMovedEventInterval",
        60000,
        "ms within which one group's pulls beyond one queue leave one line and one message in "
        "OFFSET_MOVED_EVENT; 0: each of them, as RocketMQ",
    )
    start_beside_another_master: bool = own_key(
        "startBesideAnotherMaster",
        False,
        "true: a master of a pair asks nobody whether another broker of its brokerName leads, "
        "as RocketMQ; false: it takes no messages while that is so, and until its next start",
    )
    dledger_commit_own_term_only: bool = own_key(
        "dLegerCommitOwnTermOnly",
        True,
        "a new DLedger leader commits earlier terms' entries only with one of its own, which "
        "it writes to the topic RMQ_SYS_DLEDGER_TERM (Raft paper, figure 8); false: as 4.9.7",
        needs="enableDLegerCommitLog",
    )
    dledger_hand_over_when_full: bool = own_key(
        "dLegerHandOverWhenFull",
        True,
        "a DLedger leader whose disk is full or refuses entries, or would have to delete "
        "files before their time, hands over to a member that has all entries and room; "
        "false: it stays the leader, as in 4.9.7",
        needs="enableDLegerCommitLog",
    )
    dledger_sticky_leader: int = own_key(
        "dLegerStickyLeader",
        0,
        "ms since the leader was heard of, within which a candidate of a larger term is "
        "refused; 0: never, as 4.9.7",
        needs="enableDLegerCommitLog",
    )
    dledger_push_batch_size: int = own_key(
        "dLegerPushBatchSize",
        262144,
        "bytes of entries that a DLedger leader puts into one push at most, without waiting "
        "for more; RocketMQ 4.8 and later take such pushes; 0: as 4.9.7, by enableBatchPush",
        most=4194304,
        needs="enableDLegerCommitLog",
    )
    dledger_operator_hosts: str = own_key(
        "dLegerOperatorHosts",
        "",
        "addresses and networks, comma-separated, that may ask for entries and for a "
        "leadership transfer on the DLedger port, besides this machine and the members; *: "
        "all, as 4.9.7",
        rule=NETWORKS,
        local=Local.ACCESS,
        needs="enableDLegerCommitLog",
    )
    dledger_peer_hosts: str = own_key(
        "dLegerPeerHosts",
        "",
        "addresses and networks, comma-separated, from which any member's requests may come, "
        "besides those of dLegerPeers (NAT, several interfaces); *: all, as 4.9.7",
        rule=NETWORKS,
        local=Local.ACCESS,
        needs="enableDLegerCommitLog",
    )
