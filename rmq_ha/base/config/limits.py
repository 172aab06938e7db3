"""What the values of a properties file may be, and which of 4.9.7's keys do nothing here.

Spec: store.md, section 13.
"""

from typing import NamedTuple

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
_MOST_ITEMS = 5000
"""Of one request: `base/wire/bodies.py` reads no more."""


class Range(NamedTuple):
    """Both ends belong to it."""

    low: int
    high: int


# Java's long; every other number is an int.
LONG_KEYS = frozenset(
    {
        "haFirstOffsetMax",
        "haCutConfirmedTo",
        "brokerId",
        "flushDelayOffsetInterval",
        "osPageCacheBusyTimeOutMills",
        "shortPollingTimeMills",
        "consumerFallbehindThreshold",
        "waitTimeMillsInSendQueue",
        "waitTimeMillsInPullQueue",
        "waitTimeMillsInHeartbeatQueue",
        "waitTimeMillsInTransactionQueue",
        "startAcceptSendRequestTimeStamp",
        "filterDataCleanTimeSpan",
        "transactionTimeOut",
        "transactionCheckInterval",
        "channelNotActiveInterval",
    }
)

# Zero would divide, spin or never fire.
_AT_LEAST_ONE = (
    "mappedFileSizeConsumeQueueExt flushIntervalCommitLog commitIntervalCommitLog "
    "flushIntervalConsumeQueue cleanResourceInterval maxHashSlotNum maxIndexNum maxMsgsNumBatch "
    "maxMessageSize haSendHeartbeatInterval haHousekeepingInterval haTransferBatchSize "
    "haTransferBatchMax syncFlushTimeout slaveTimeout flushDelayOffsetInterval "
    "maxTransferBytesOnMessageInMemory maxTransferCountOnMessageInMemory "
    "maxTransferBytesOnMessageInDisk maxTransferCountOnMessageInDisk defaultQueryMaxNum "
    "defaultTopicQueueNums flushConsumerOffsetInterval registerBrokerTimeoutMills "
    "registerNameServerPeriod shortPollingTimeMills transactionTimeOut transactionCheckMax "
    "transactionCheckInterval serverChannelMaxIdleTimeSeconds serverSocketBacklog "
    "sendThreadPoolQueueCapacity replyThreadPoolQueueCapacity "
    "clientChannelMaxIdleTimeSeconds connectTimeoutMillis haSlaveFallbehindMax"
)

RANGES: dict[str, Range] = {
    **{name: Range(1, INT_MAX) for name in _AT_LEAST_ONE.split()},
    "haCutConfirmedTo": Range(-1, LONG_MAX),
    "listenPort": Range(0, 65535),
    "haListenPort": Range(0, 65535),
    "embeddedNamesrvPort": Range(0, 65535),
    "metricsPort": Range(0, 65535),
    "metricsSeriesLimit": Range(0, 100_000),
    "logMaxFiles": Range(0, INT_MAX),
    "maxHaTransferByteInSecond": Range(4096, INT_MAX),
    "mappedFileSize": Range(4096, INT_MAX),
    "scanInactiveMasterInterval": Range(100, INT_MAX),
    "scanNotActiveBrokerInterval": Range(100, INT_MAX),
    "offsetMovedEventInterval": Range(0, INT_MAX),
    "turnMillis": Range(0, INT_MAX),
    "turnMillisPerIp": Range(0, INT_MAX),
    "maxBytesPerSecondPerAccount": Range(0, INT_MAX),
    "maxBytesPerSecondPerIp": Range(0, INT_MAX),
    "maxRequestsPerSecondPerAccount": Range(0, INT_MAX),
    "maxRequestsPerSecondPerIp": Range(0, INT_MAX),
    "haMaxSlaves": Range(1, INT_MAX),
    "maxConnections": Range(0, INT_MAX),
    "maxConnectionsPerIp": Range(0, INT_MAX),
    "maxHeaderSize": Range(4096, 1 << 24),
    "maxUnfinishedBytes": Range(1 << 24, INT_MAX),
    "maxUnfinishedBytesPerIp": Range(1 << 24, INT_MAX),
    "frameTimeoutSeconds": Range(0, INT_MAX),
    "maxRegistrationBytes": Range(4096, INT_MAX),
    "maxTopicsOfBroker": Range(1, INT_MAX),
    "maxTopicRoutes": Range(1, INT_MAX),
    "maxMessagesPerBatch": Range(1, INT_MAX),
    "maxGroupsPerHeartbeat": Range(1, _MOST_ITEMS),
    "maxSubscriptionsPerHeartbeat": Range(1, _MOST_ITEMS),
    "maxFilterCharactersPerHeartbeat": Range(1, INT_MAX),
    "maxQueuesPerLock": Range(1, _MOST_ITEMS),
    "maxGroups": Range(1, INT_MAX),
    "maxTopics": Range(1, INT_MAX),
    "aclSignedTimeWindow": Range(1, 86400),
    "aclSignedSessions": Range(1, INT_MAX),
    "brokerId": Range(-1, LONG_MAX),
    "brokerPermission": Range(0, 7),
    "diskMaxUsedSpaceRatio": Range(0, 100),
    "accessMessageInMemoryMaxRatio": Range(0, 100),
    "diskSpaceWarningLevelRatio": Range(35, 99),
    "diskSpaceCleanForciblyRatio": Range(30, 95),
    "dLegerPushBatchSize": Range(0, 4 << 20),
    "dLegerStickyLeader": Range(0, INT_MAX),
    "duplicateWindowMillis": Range(0, INT_MAX),
    "lockMaxLiveTime": Range(1000, INT_MAX),
    "lockMaxLiveTimeWithoutConnection": Range(0, INT_MAX),
    "maxErrorRateOfBloomFilter": Range(1, 99),
    "expectConsumerNumUseFilter": Range(1, 100_000),
    "mappedFileSizeCommitLog": Range(4096, INT_MAX),
    "mappedFileSizeConsumeQueue": Range(20, INT_MAX),
    "maxHashSlotNum": Range(1, 2**28),
    "maxIndexNum": Range(2, 10**8),
}

# Read by nobody in 4.9.7 either, or about a mechanism that we do not need: known, silent.
NO_EFFECT = frozenset(
    [
        "autoDeleteUnusedStats",
        "bitMapLengthConsumeQueueExt",
        "channelNotActiveInterval",
        "clientPooledByteBufAllocatorEnable",
        "clusterTest",
        "commercialBaseCount",
        "commercialBigCount",
        "commercialEnable",
        "commercialTimerCount",
        "commercialTransCount",
        "debugLockEnable",
        "diskFallRecorded",
        "enableScheduleMessageStats",
        "filterServerNums",
        "flushConsumerOffsetHistoryInterval",
        "highSpeedMode",
        "isolateLogEnable",
        "maxDelayTime",
        "productEnvName",
        "putMsgIndexHightWater",
        "serverPooledByteBufAllocatorEnable",
        "transferMsgByHeap",
        "useEpollNativeSelector",
        "useReentrantLockWhenPutMessage",
    ]
)

_NOT_IMPLEMENTED_BECAUSE: dict[str, list[str]] = {
    "there is one reactor thread here, no pool to size": [
        "adminBrokerThreadPoolNums",
        "clientCallbackExecutorThreads",
        "clientManageThreadPoolNums",
        "clientWorkerThreads",
        "consumerManageThreadPoolNums",
        "endTransactionThreadPoolNums",
        "heartbeatThreadPoolNums",
        "processReplyMessageThreadPoolNums",
        "pullMessageThreadPoolNums",
        "putMessageFutureThreadPoolNums",
        "queryMessageThreadPoolNums",
        "sendMessageThreadPoolNums",
        "serverCallbackExecutorThreads",
        "serverSelectorThreads",
        "serverWorkerThreads",
    ],
    "such requests are answered in the turn in which they come, and never queue here": [
        "clientManagerThreadPoolQueueCapacity",
        "consumerManagerThreadPoolQueueCapacity",
        "heartbeatThreadPoolQueueCapacity",
        "pullThreadPoolQueueCapacity",
        "queryThreadPoolQueueCapacity",
        "waitTimeMillsInHeartbeatQueue",
        "waitTimeMillsInPullQueue",
    ],
    "the end of a transaction has no answer that could refuse it, and is never put off": [
        "endTransactionPoolQueueCapacity",
        "waitTimeMillsInTransactionQueue",
    ],
    "what waits for flush and replica is limited by sendThreadPoolQueueCapacity": [
        "putThreadPoolQueueCapacity",
    ],
    "there is no off-heap write pool here": [
        "commitCommitLogLeastPages",
        "commitCommitLogThoroughInterval",
        "commitIntervalCommitLog",
        "fastFailIfNoBufferInStorePool",
        "transientStorePoolEnable",
        "transientStorePoolSize",
    ],
    "commit log files are not mapped into memory here": [
        "destroyMapedFileIntervalForcibly",
        "flushLeastPagesWhenWarmMapedFile",
        "redeleteHangedFileInterval",
        "warmMapedFileEnable",
    ],
    "light message queues are not implemented": [
        "enableLmq",
        "enableMultiDispatch",
        "maxLmqConsumeQueueNum",
    ],
    "delivery of delayed messages never blocks here": [
        "enableScheduleAsyncDeliver",
        "scheduleAsyncDeliverMaxPendingLimit",
        "scheduleAsyncDeliverMaxResendNum2Blocked",
    ],
    "the store paces this itself": [
        "deleteCommitLogFilesInterval",
        "deleteConsumeQueueFilesInterval",
        "flushCommitLogTimed",
        "flushConsumeQueueLeastPages",
    ],
    "outgoing requests are not limited by number here": [
        "clientAsyncSemaphoreValue",
        "clientOnewaySemaphoreValue",
        "serverAsyncSemaphoreValue",
        "serverOnewaySemaphoreValue",
    ],
    "the sizes of the operating system and of Twisted are used": [
        "clientSocketRcvBufSize",
        "clientSocketSndBufSize",
        "serverSocketBacklog",
        "serverSocketRcvBufSize",
        "serverSocketSndBufSize",
        "writeBufferHighWaterMark",
        "writeBufferLowWaterMark",
    ],
}

# Known in 4.9.7 and not here: a value other than the default warns with this reason.
NOT_IMPLEMENTED: dict[str, str] = {
    key: reason for reason, keys in _NOT_IMPLEMENTED_BECAUSE.items() for key in keys
}

# A value that would change what the broker promises: the start stops.
REFUSED: dict[str, str] = {
    "duplicationEnable": "dispatch breaks with it, as it does in RocketMQ 4.9.7",
    "fetchNamesrvAddrByAddressServer": "not implemented; set namesrvAddr",
    "readOnlyCommitLogStorePaths": "not implemented: move these files into storePathCommitLog",
}

# Keys of ours that are gone: the start stops, as what they said would not be done.
REPLACED: dict[str, str] = dict.fromkeys(
    ("commitLogPlugIn", "haPlugIn"),
    "is gone: journalPlugIn names the one plugin that keeps messages; remove this line, or make "
    "one journal of both plugins (examples/acme-journal)",
)

TLS_BOOLEANS = frozenset(
    {
        "tls.enable",
        "tls.test.mode.enable",
        "tls.server.authClient",
        "tls.client.authServer",
        "tls.ha.enable",
    }
)
TLS_CHOICES: dict[str, tuple[str, ...]] = {
    "tls.server.mode": ("disabled", "permissive", "enforcing"),
    "tls.server.need.client.auth": ("none", "optional", "require"),
    "tls.ha.mode": ("disabled", "permissive", "enforcing"),
}
# Spec: remoting.md, section 1.10. Those with `ha` are ours: the replication port.
TLS_KEYS = (
    TLS_BOOLEANS
    | TLS_CHOICES.keys()
    | {
        f"tls.{side}.{name}"
        for side in ("server", "client", "ha")
        for name in ("keyPath", "keyPassword", "certPath", "trustCertPath")
    }
    | {"tls.config.file", "tls.ha.allowedNames", "tls.ha.masterName"}
)
