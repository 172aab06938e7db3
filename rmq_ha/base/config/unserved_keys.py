"""Keys of other servers and versions that do nothing here, in one table.

A server starts with them, shows them, and says what each of them means here; no other code reads
them. `--check` takes them, too: a file that Java takes is no fault. Two kinds stop a start: a key
that would change what a broker promises, and one whose user expects that strangers are refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import SimpleNamespace
from typing import Any

from rmq_ha.base.config.fields import INT_MAX, LONG_MAX, FirstReader, Key, Local


class Section(Enum):
    """The part of RocketMQ 4.9's configuration that a key belongs to."""

    BROKER = "BrokerConfig"
    STORE = "MessageStoreConfig"
    SERVER = "NettyServerConfig"
    CLIENT = "NettyClientConfig"
    NAMESRV = "NamesrvConfig"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnservedKey(Key):
    """
    A key that has no effect in rmq-ha.

    :ivar section: where RocketMQ 4.9 declares the key; None: it does not know the key.
    :ivar why: why the key does nothing here; empty: nothing is known about the key.
    :ivar advice: how an operator gets the effect here; empty: the line can be removed.
    :ivar is_silent: whether a start does not mention the key, since nobody misses its effect.
    :ivar is_refused: whether a value other than the default stops the start.
    :ivar is_guard: whether a user who writes `true` expects that strangers are refused.
    """

    section: Section | None = None
    why: str = ""
    advice: str = ""
    is_silent: bool = False
    is_refused: bool = False
    is_guard: bool = False

    @property
    def reason(self) -> str:
        """Why the key does nothing here, and how to get its effect."""
        return f"{self.why}; {self.advice}" if self.advice else self.why

    @property
    def sentence(self) -> str | None:
        """The notice for a key that 4.9 does not know; None: there is nothing to say about it."""
        if not self.why or self.section is not None:
            return None
        reader = (
            "it is a key of RocketMQ 5"
            if self.since is FirstReader.RMQ_5
            else "no RocketMQ 4.9 reads it"
        )
        return f"{self.name} has no effect: {reader}, and {self.why}"


class UnservedValues(SimpleNamespace):
    """
    The values that one file gives to keys without effect, for answers that show all settings.

    :ivar rows: the keys, by name.
    """

    rows: Mapping[str, UnservedKey]

    def __init__(self, *sections: Section) -> None:
        rows = [row for row in UNSERVED.values() if row.section in sections]
        super().__init__(
            rows={row.name: row for row in rows}, **{row.name: row.default for row in rows}
        )

    def part(self, *sections: Section) -> "UnservedValues":
        """Return the values of other sections, for a name server or controller in this process."""
        values = UnservedValues(*sections)
        for name in values.rows.keys() & self.rows.keys():
            setattr(values, name, getattr(self, name))
        return values


_UNUSED = "RocketMQ 4.9 does not act on it either"
_UNSEEN = "in rmq-ha it changes nothing that a client or an operator sees"
_SILENT = (_UNUSED, _UNSEEN)

_OF_4: dict[str, dict[Section, dict[str, Any]]] = {
    "rmq-ha serves requests in one thread, so there is no pool to size": {
        Section.BROKER: {
            "sendMessageThreadPoolNums": None,
            "putMessageFutureThreadPoolNums": None,
            "pullMessageThreadPoolNums": None,
            "processReplyMessageThreadPoolNums": None,
            "queryMessageThreadPoolNums": None,
            "adminBrokerThreadPoolNums": 16,
            "clientManageThreadPoolNums": 32,
            "consumerManageThreadPoolNums": 32,
            "heartbeatThreadPoolNums": None,
            "endTransactionThreadPoolNums": None,
        },
        Section.SERVER: {
            "serverWorkerThreads": 8,
            "serverCallbackExecutorThreads": 0,
            "serverSelectorThreads": 3,
        },
        Section.CLIENT: {"clientWorkerThreads": 4, "clientCallbackExecutorThreads": None},
    },
    "rmq-ha answers such requests as soon as it reads them, so they never wait in a queue": {
        Section.BROKER: {
            "pullThreadPoolQueueCapacity": 100000,
            "queryThreadPoolQueueCapacity": 20000,
            "clientManagerThreadPoolQueueCapacity": 1000000,
            "consumerManagerThreadPoolQueueCapacity": 1000000,
            "heartbeatThreadPoolQueueCapacity": 50000,
            "waitTimeMillsInPullQueue": 5000,
            "waitTimeMillsInHeartbeatQueue": 31000,
        },
    },
    "clients expect no answer to the end of a transaction, so it is never refused as too late": {
        Section.BROKER: {
            "endTransactionPoolQueueCapacity": 100000,
            "waitTimeMillsInTransactionQueue": 3000,
        },
    },
    "sendThreadPoolQueueCapacity limits the messages that wait for disk and replicas": {
        Section.BROKER: {"putThreadPoolQueueCapacity": 10000},
    },
    "there is no off-heap write pool here": {
        Section.STORE: {
            "commitIntervalCommitLog": 200,
            "commitCommitLogLeastPages": 4,
            "commitCommitLogThoroughInterval": 200,
            "transientStorePoolEnable": False,
            "transientStorePoolSize": 5,
            "fastFailIfNoBufferInStorePool": False,
        },
    },
    "commit log files are not mapped into memory here": {
        Section.STORE: {
            "destroyMapedFileIntervalForcibly": 120000,
            "redeleteHangedFileInterval": 120000,
            "flushLeastPagesWhenWarmMapedFile": 4096,
            "warmMapedFileEnable": False,
        },
    },
    "light message queues are not implemented": {
        Section.STORE: {
            "enableLmq": False,
            "enableMultiDispatch": False,
            "maxLmqConsumeQueueNum": 20000,
        },
    },
    "delivery of delayed messages never blocks here": {
        Section.STORE: {
            "enableScheduleAsyncDeliver": False,
            "scheduleAsyncDeliverMaxPendingLimit": 2000,
            "scheduleAsyncDeliverMaxResendNum2Blocked": 3,
        },
    },
    "the store chooses this pace itself": {
        Section.STORE: {
            "flushCommitLogTimed": True,
            "deleteCommitLogFilesInterval": 100,
            "deleteConsumeQueueFilesInterval": 100,
            "flushConsumeQueueLeastPages": 2,
        },
    },
    "outgoing requests are not limited by number here": {
        Section.SERVER: {"serverOnewaySemaphoreValue": 256, "serverAsyncSemaphoreValue": 64},
        Section.CLIENT: {"clientOnewaySemaphoreValue": 65535, "clientAsyncSemaphoreValue": 65535},
    },
    "the sizes of the operating system and of Twisted are used": {
        Section.SERVER: {
            "serverSocketSndBufSize": 0,
            "serverSocketRcvBufSize": 0,
            "writeBufferHighWaterMark": 0,
            "writeBufferLowWaterMark": 0,
            "serverSocketBacklog": 1024,
        },
        Section.CLIENT: {"clientSocketSndBufSize": 0, "clientSocketRcvBufSize": 0},
    },
    _UNUSED: {
        Section.BROKER: {
            "flushConsumerOffsetHistoryInterval": 60000,
            "highSpeedMode": False,
            "commercialEnable": True,
            "maxDelayTime": 40,
            "commercialTimerCount": 1,
            "commercialTransCount": 1,
            "commercialBigCount": 1,
            "commercialBaseCount": 1,
        },
        Section.STORE: {"bitMapLengthConsumeQueueExt": 64, "putMsgIndexHightWater": 600000},
        Section.CLIENT: {
            "channelNotActiveInterval": 60000,
            "clientPooledByteBufAllocatorEnable": False,
        },
    },
    _UNSEEN: {
        Section.BROKER: {
            "transferMsgByHeap": True,
            "autoDeleteUnusedStats": False,
            "isolateLogEnable": False,
        },
        Section.STORE: {
            "useReentrantLockWhenPutMessage": True,
            "debugLockEnable": False,
            "diskFallRecorded": True,
            "enableScheduleMessageStats": True,
        },
        Section.SERVER: {
            "serverPooledByteBufAllocatorEnable": True,
            "useEpollNativeSelector": False,
        },
        Section.NAMESRV: {"productEnvName": "center", "clusterTest": False},
    },
}
"""Keys of RocketMQ 4.9 with its defaults; None where Java computes the default."""

_ALONE = (
    UnservedKey(
        name="filterServerNums",
        section=Section.BROKER,
        kind=int,
        default=0,
        why=_UNUSED,
        is_silent=True,
        local=Local.PROGRAMS,
    ),
    UnservedKey(
        name="fetchNamesrvAddrByAddressServer",
        section=Section.BROKER,
        kind=bool,
        default=False,
        why="not implemented",
        advice="set namesrvAddr",
        is_refused=True,
        local=Local.SENDS,
    ),
    UnservedKey(
        name="duplicationEnable",
        section=Section.STORE,
        kind=bool,
        default=False,
        why="dispatch breaks with it, as it does in RocketMQ 4.9.7",
        advice="remove the line",
        is_refused=True,
    ),
    UnservedKey(
        name="readOnlyCommitLogStorePaths",
        section=Section.STORE,
        is_optional=True,
        why="not implemented",
        advice="move these files into storePathCommitLog",
        is_refused=True,
        local=Local.FILES,
    ),
    *(
        UnservedKey(
            name=name,
            since=FirstReader.OURS,
            why="is gone: journalPlugIn names the one plugin that keeps messages",
            advice="remove this line, or make one journal of both plugins (examples/acme-journal)",
            is_refused=True,
        )
        for name in ("commitLogPlugIn", "haPlugIn")
    ),
    *(
        UnservedKey(name=name, since=FirstReader.RMQ_5, local=Local.FILES)
        for name in ("brokerConfigPath", "configStorePathName")
    ),
)
"""
Keys that share no reason with others. RocketMQ refuses the last two in requests, and reads them
nowhere.
"""

_OF_3 = {
    "storePathConsumeQueue": "queues are always in the folder consumequeue of storePathRootDir",
    "storePathIndex": "the index is always in the folder index of storePathRootDir",
    "storeCheckpoint": "the checkpoint is always the file checkpoint in storePathRootDir",
    "abortFile": "the file abort is always in storePathRootDir",
    "maxCommitLogFilesNumber": "files of the log are kept for fileReservedTime hours",
    "checkTransactionMessageEnable": "a master always asks about open transactions",
}
"""Keys in many a broker.conf that was copied since 3.x; RocketMQ 4.9 reads none of them."""

_OF_5 = {
    "timer messages wait in the commit log here, without files and threads of their own": """
        mappedFileSizeTimerLog timerCheckMetricsWhen timerColdDataCheckIntervalMs
        timerEnableCheckMetrics timerEnableDisruptor timerEnableRetryUntilSuccess
        timerFlushIntervalMs timerGetMessageThreadNum timerInterceptDelayLevel
        timerMetricSmallThreshold timerPrecisionMs timerProgressLogIntervalMs
        timerPutMessageThreadNum timerRollWindowSlot timerSkipUnknownError timerStopEnqueue
        timerWarmEnable
    """,
    "the log alone says which messages are out with whom": """
        ackMessageThreadPoolNums ackThreadPoolQueueCapacity appendAckAsync appendCkAsync
        enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag
        enablePopBatchAck enablePopBufferMerge enablePopLog enablePopMetrics
        enableSkipLongAwaitingAck initPopOffsetByCheckMsgInMem popCkMaxBufferSize
        popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut
        popConsumerFSServiceInit popConsumerKVServiceEnable popConsumerKVServiceInit
        popConsumerKVServiceLog popFromRetryProbabilityForPriority
        popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize
        popResponseReturnActualRetryTopic popReviveConcurrency popReviveMaxAttemptTimes
        popReviveMaxReturnSizePerRead reviveAckWaitMs reviveInterval reviveMaxSlow
        reviveQueueNum reviveScanTime useSeparateRetryQueue waitTimeMillsInAckQueue
    """,
    "aclEnable=true and plain_acl.yml say who may do what here": """
        aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond authConfigPath
        authenticationEnabled authenticationMetadataProvider authenticationProvider
        authenticationStrategy authenticationWhitelist authorizationEnabled
        authorizationMetadataProvider authorizationProvider authorizationStrategy
        authorizationWhitelist initAuthenticationUser innerClientAuthenticationCredentials
        migrateAuthFromV1Enabled statefulAuthenticationCacheExpiredSecond
        statefulAuthenticationCacheMaxNum statefulAuthorizationCacheExpiredSecond
        statefulAuthorizationCacheMaxNum userCacheExpiredSecond userCacheMaxNum
        userCacheRefreshSecond
    """,
    "metricsPort serves /metrics to Prometheus": """
        metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
        metricLoggingExporterIntervalInMills metricsExporterType metricsGrpcExporterHeader
        metricsGrpcExporterTarget metricsInDelta metricsLabel metricsOtelCardinalityLimit
        metricsPromExporterHost metricsPromExporterPort transactionMetricFlushInterval
    """,
    "queues, indexes and tables are files here, and there is no RocksDB": """
        bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin
        enableRocksDBLog memTableFlushIntervalMs realTimePersistRocksDBConfig
        rocksdbCQDoubleWriteEnable rocksdbCompressionType rocksdbFlushWalFrequency
        rocksdbWalFileRollingThreshold statRocksDBCQIntervalSec storeType
    """,
    "slaves never act as masters here; enableControllerMode elects one of them": """
        brokerNotActiveTimeoutMillis checkSyncStateSetPeriod compatibleWithOldNameSrv
        enableAutoInSyncReplicas enableRemoteEscape enableSlaveActingMaster forwardTimeout
        haMaxGapNotInSync isBrokerContainer maxSlaveResendLength notifyMinBrokerIdChanged
        sendHeartbeatTimeoutMillis skipPreOnline supportActingMaster
        syncBrokerMemberGroupPeriod totalReplicas
    """,
    "rmq-ha does not limit reads of old (cold) data": """
        cgColdReadThreshold coldCtrStrategyEnable coldDataFlowControlEnable
        coldDataScanEnable globalColdReadThreshold usePIDColdCtrStrategy
    """,
    "topics are not compacted here": """
        compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal
        compactionThreadNum enableCompaction maxOffsetMapSize
    """,
    "a registration is one request here": """
        enableSingleTopicRegister enableSplitRegistration splitRegistrationSize
        unRegisterBrokerQueueCapacity
    """,
    "rmq-ha does not act on it": """
        accessMessageInMemoryHotRatio accountStatsEnable accountStatsPrintZeroValues
        adminBrokerThreadPoolQueueCapacity asyncSendEnable autoMessageVersionOnTopicLen
        batchDispatchRequestThreadPoolNums broadcastOffsetExpireMaxSecond
        broadcastOffsetExpireSecond channelExpiredTimeout cleanOfflineBrokerInterval
        cleanSwapedMapInterval clearRetryTopicWhenDeleteTopic clientRequestThreadPoolNums
        clientRequestThreadPoolQueueCapacity commercialSizePerMsg
        commitLogForceSwapMapInterval commitLogSwapMapInterval
        commitLogSwapMapReserveFileNum configBlackList configManagerVersion
        consumerOffsetUpdateVersionStep correctLogicMinOffsetForceInterval
        correctLogicMinOffsetSleepInterval dataReadAheadEnable
        defaultThreadPoolNums defaultThreadPoolQueueCapacity delayOffsetUpdateVersionStep
        deleteFileBatchMax disableCallbackExecutor disableNettyWorkerGroup
        disappearTimeAfterStart dispatchCqCacheNum dispatchCqThreads
        dispatchFromSenderThread enableAllTopicList enableAsyncReput
        enableBroadcastOffsetStore enableBuildConsumeQueueConcurrently
        enableCleanExpiredOffset enableCreateSysGroup enableFastChannelEventProcess
        enableLmqStats enableMixedMessageType enableNetWorkFlowControl
        enableReconnectForGoAway enableRegisterProducer enableShutdownGracefully
        enableTopicList enabledAppendPropCRC estimateAccumulation
        fetchControllerAddrByDnsLookup fetchNameSrvAddrByDnsLookup forceVerifyPropCRC
        isScanAvailableNameSrv litePullMessageEnable litePullMessageThreadPoolNums
        litePullThreadPoolQueueCapacity loadBalancePollNameServerInterval
        loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity
        lockInStrictMode logicQueueForceSwapMapInterval logicQueueSwapMapInterval
        logicQueueSwapMapReserveFileNum logicalDiskSpaceCleanForciblyThreshold
        mappedFileSwapEnable mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests
        maxBatchDeleteFilesNum maxChecksumRange maxConsumeQueueScan maxFilterMessageSize
        maxReconnectIntervalTimeSeconds maxRecoveryCommitlogFiles maxStatsIdleTimeInMinutes
        maxTopicLength needWaitForService printChannelGroups printChannelGroupsMinNum
        pullBatchMaxMessageCount putConsumeQueueDataByFileChannel putMessageTimeout
        readUnCommitted realTimeNotifyConsumerChange recheckReputOffsetFromCq
        recoverConcurrently recoverThreadPoolNums rejectPullConsumerEnable
        replicasPerDiskPartition sampleCountThreshold sampleSteps searchBcqByCacheEnable
        serverNettyWorkerGroupEnable shutdownWaitTimeSeconds
        skipWhenCKRePutReachMaxTimes socksProxyConfig spinLockCollisionRetreatOptimalDegree
        subscriptionExpiredTimeout syncMasterFlushOffsetWhenStartup topicQueueLockNum
        transactionOpBatchInterval transactionOpMsgMaxSize travelCqFileNumWhenGetMessage
        updateNameServerAddrPeriod useABSLock useServerSideResetOffset useStaticSubscription
        validateSystemTopicWhenUpdateTopic waitSecondsForService
        waitTimeMillsInAdminBrokerQueue waitTimeMillsInLitePullQueue
        wakeCommitWhenPutMessage wakeFlushWhenPutMessage
    """,
}
"""Keys that RocketMQ 5.3.3 or 5.4 reads, by what they mean here."""

_LONGS = (
    "waitTimeMillsInPullQueue",
    "waitTimeMillsInHeartbeatQueue",
    "waitTimeMillsInTransactionQueue",
    "channelNotActiveInterval",
)
_GUARDS = ("authenticationEnabled", "authorizationEnabled")


def _rows() -> Iterator[UnservedKey]:
    for why, sections in _OF_4.items():
        for section, defaults in sections.items():
            for name, default in defaults.items():
                yield UnservedKey(
                    name=name,
                    attribute=name,
                    section=section,
                    kind=int if default is None else type(default),
                    is_optional=default is None,
                    default=default,
                    most=LONG_MAX if name in _LONGS else INT_MAX,
                    why=why,
                    is_silent=why in _SILENT,
                )
    for row in _ALONE:
        yield replace(row, attribute=row.name)
    for name, why in _OF_3.items():
        yield UnservedKey(name=name, since=FirstReader.RMQ_3, why=why)
    for why, names in _OF_5.items():
        for name in names.split():
            yield UnservedKey(name=name, since=FirstReader.RMQ_5, why=why, is_guard=name in _GUARDS)


UNSERVED: Mapping[str, UnservedKey] = {row.name: row for row in _rows()}
"""Every key without effect in rmq-ha, by its name."""
