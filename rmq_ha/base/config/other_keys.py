"""
Keys that other versions of RocketMQ read, and those that are only copied from one file to the next.

A server starts with them and says what each of them means here. `--check` takes them, too: a file
that Java takes is no fault. Keys that would turn on access control are one.
"""

_DEAD = {
    "storePathConsumeQueue": "queues are always in the folder consumequeue of storePathRootDir",
    "storePathIndex": "the index is always in the folder index of storePathRootDir",
    "storeCheckpoint": "the checkpoint is always the file checkpoint in storePathRootDir",
    "abortFile": "the file abort is always in storePathRootDir",
    "maxCommitLogFilesNumber": "files of the log are kept for fileReservedTime hours",
    "checkTransactionMessageEnable": "a master always asks about open transactions",
}
"""Posted in many a broker.conf since 3.x; RocketMQ 4.9 reads none of them."""

_OF_5 = {
    "messages with a delay of their own are refused (refuseUnservedProperties)": """
        allowRecallWhenBrokerNotWriteable appendTopicForTimerDeleteKey
        mappedFileSizeTimerLog recallMessageEnable timerCheckMetricsWhen
        timerColdDataCheckIntervalMs timerCongestNumEachSlot timerEnableCheckMetrics
        timerEnableDisruptor timerEnableRetryUntilSuccess timerFlushIntervalMs
        timerGetMessageThreadNum timerInterceptDelayLevel timerMaxDelaySec
        timerMetricSmallThreshold timerPrecisionMs timerProgressLogIntervalMs
        timerPutMessageThreadNum timerRollWindowSlot timerSkipUnknownError timerStopDequeue
        timerStopEnqueue timerWarmEnable timerWheelEnable
    """,
    "consumers pull here, and there is no pop consumption": """
        ackMessageThreadPoolNums ackThreadPoolQueueCapacity appendAckAsync appendCkAsync
        defaultPopShareQueueNum enableNotifyAfterPopOrderLockRelease
        enableNotifyBeforePopCalculateLag enablePopBatchAck enablePopBufferMerge
        enablePopLog enablePopMessageThreshold enablePopMetrics enableRetryTopicV2
        enableSkipLongAwaitingAck initPopOffsetByCheckMsgInMem maxPopPollingSize
        popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime
        popCkStayBufferTimeOut popConsumerFSServiceInit popConsumerKVServiceEnable
        popConsumerKVServiceInit popConsumerKVServiceLog popFromRetryProbability
        popFromRetryProbabilityForPriority popInflightMessageThreshold
        popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize
        popPollingSize popResponseReturnActualRetryTopic popReviveConcurrency
        popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead
        retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs reviveInterval reviveMaxSlow
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
    "nothing watches reads of cold data here": """
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
    "nothing here acts on it": """
        accessMessageInMemoryHotRatio accountStatsEnable accountStatsPrintZeroValues
        adminBrokerThreadPoolQueueCapacity asyncSendEnable autoMessageVersionOnTopicLen
        batchDispatchRequestThreadPoolNums broadcastOffsetExpireMaxSecond
        broadcastOffsetExpireSecond channelExpiredTimeout cleanOfflineBrokerInterval
        cleanSwapedMapInterval clearRetryTopicWhenDeleteTopic clientRequestThreadPoolNums
        clientRequestThreadPoolQueueCapacity commercialSizePerMsg
        commitLogForceSwapMapInterval commitLogSwapMapInterval
        commitLogSwapMapReserveFileNum configBlackList configManagerVersion
        consumerOffsetUpdateVersionStep correctLogicMinOffsetForceInterval
        correctLogicMinOffsetSleepInterval dataReadAheadEnable defaultMessageRequestMode
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
        serverLoadBalancerEnable serverNettyWorkerGroupEnable shutdownWaitTimeSeconds
        skipWhenCKRePutReachMaxTimes socksProxyConfig spinLockCollisionRetreatOptimalDegree
        subscriptionExpiredTimeout syncMasterFlushOffsetWhenStartup topicQueueLockNum
        transactionOpBatchInterval transactionOpMsgMaxSize travelCqFileNumWhenGetMessage
        updateNameServerAddrPeriod useABSLock useServerSideResetOffset useStaticSubscription
        validateSystemTopicWhenUpdateTopic waitSecondsForService
        waitTimeMillsInAdminBrokerQueue waitTimeMillsInLitePullQueue
        wakeCommitWhenPutMessage wakeFlushWhenPutMessage
    """,
}
"""Read by RocketMQ 5.3.3 or 5.4: sentence to keys."""

_TURN_ON_ACCESS_CONTROL = ("authenticationEnabled", "authorizationEnabled")
_SENTENCES = _DEAD | {key: sentence for sentence, keys in _OF_5.items() for key in keys.split()}


def sentence_of(key: str) -> str | None:
    """What a key of another version means here; None: no version knows it."""
    sentence = _SENTENCES.get(key)
    if sentence is None:
        return None
    reader = "no RocketMQ 4.9 reads it" if key in _DEAD else "it is a key of RocketMQ 5"
    return f"{key} has no effect: {reader}, and {sentence}"


def leaves_open(key: str, value: str) -> bool:
    """Who writes this expects that strangers are refused, and nobody would refuse them."""
    return key in _TURN_ON_ACCESS_CONTROL and value.lower() == "true"
