"""BrokerConfig: the keys of a broker that are not about its store.

Spec: store.md, section 13.
"""

from dataclasses import dataclass

from rmq_ha.base.config.fields import Local, key
from rmq_ha.base.config.observed_settings import ObservedSettings
from rmq_ha.base.config.text_rules import ADDRESSES


@dataclass(slots=True, kw_only=True)
class BrokerConfig(ObservedSettings):
    """The broker keys of a broker properties file."""

    rocketmq_home: str | None = key(
        "rocketmqHome",
        None,
        "installation directory; plain_acl.yml is expected below it",
        local=Local.FILES,
    )
    namesrv_addr: str | None = key(
        "namesrvAddr",
        None,
        "name servers, host:port, separated by ;",
        rule=ADDRESSES,
        local=Local.SENDS,
        dialled=True,
    )
    broker_ip1: str | None = key(
        "brokerIP1",
        None,
        "address that clients are told, and that ids of messages contain; empty: the first "
        "local address",
        local=Local.SENDS,
        resolved=True,
    )
    broker_ip2: str | None = key(
        "brokerIP2",
        None,
        "address that slaves are told; empty: the first local address",
        local=Local.SENDS,
        resolved=True,
    )
    broker_name: str | None = key(
        "brokerName",
        None,
        "name that a master and its slaves share; empty: the host name",
        local=Local.IDENTITY,
    )
    broker_cluster_name: str = key(
        "brokerClusterName",
        "DefaultCluster",
        "name of the cluster",
        local=Local.IDENTITY,
        same_in_set=True,
    )
    broker_id: int = key(
        "brokerId", 0, "0: master; above 0: slave", least=-1, is_long=True, local=Local.IDENTITY
    )
    broker_permission: int = key(
        "brokerPermission",
        6,
        "sum of 4 (clients may read) and 2 (clients may write)",
        most=7,
        mutable=True,
    )
    default_topic_queue_nums: int = key(
        "defaultTopicQueueNums", 8, "most queues of a topic that a send creates", least=1
    )
    auto_create_topic_enable: bool = key(
        "autoCreateTopicEnable",
        True,
        "a send to an unknown topic creates it",
        mutable=True,
        same_in_set=True,
    )
    cluster_topic_enable: bool = key(
        "clusterTopicEnable",
        True,
        "clients may read and write the topic that has the cluster's name",
    )
    broker_topic_enable: bool = key(
        "brokerTopicEnable", True, "clients may read and write the topic that has the broker's name"
    )
    auto_create_subscription_group: bool = key(
        "autoCreateSubscriptionGroup",
        True,
        "an unknown consumer group is created when its first consumer asks",
        mutable=True,
        same_in_set=True,
    )
    message_store_plug_in: str = key(
        "messageStorePlugIn",
        "",
        "plugins around the message store, separated by commas",
        local=Local.CODE,
    )
    msg_trace_topic_name: str = key(
        "msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", "name of the topic for message traces"
    )
    trace_topic_enable: bool = key("traceTopicEnable", False, "create the topic for message traces")
    flush_consumer_offset_interval: int = key(
        "flushConsumerOffsetInterval", 5000, "ms between two writes of consumerOffset.json", least=1
    )
    reject_transaction_message: bool = key(
        "rejectTransactionMessage", False, "refuse transactional messages", mutable=True
    )
    send_thread_pool_queue_capacity: int = key(
        "sendThreadPoolQueueCapacity",
        10000,
        "most sends that wait for disk and replicas; further sends are refused as busy",
        least=1,
        mutable=True,
    )
    reply_thread_pool_queue_capacity: int = key(
        "replyThreadPoolQueueCapacity",
        10000,
        "most replies of request-reply that wait; further replies are refused as busy",
        least=1,
    )
    long_polling_enable: bool = key(
        "longPollingEnable",
        True,
        "hold a pull that finds nothing until a message comes",
        mutable=True,
    )
    short_polling_time_mills: int = key(
        "shortPollingTimeMills",
        1000,
        "without longPollingEnable: ms for which a pull is held",
        least=1,
        is_long=True,
        mutable=True,
    )
    notify_consumer_ids_changed_enable: bool = key(
        "notifyConsumerIdsChangedEnable",
        True,
        "tell consumers of a group when its members change",
        mutable=True,
    )
    region_id: str = key(
        "regionId", "DefaultRegion", "region in the traces of clients", mutable=True
    )
    register_broker_timeout_mills: int = key(
        "registerBrokerTimeoutMills",
        6000,
        "ms to wait for a name server's answer to a registration",
        least=1,
        mutable=True,
    )
    slave_read_enable: bool = key(
        "slaveReadEnable",
        False,
        "tell consumers that lag far behind to pull from a slave",
        mutable=True,
    )
    disable_consume_if_consumer_read_slowly: bool = key(
        "disableConsumeIfConsumerReadSlowly",
        False,
        "stop a consumer group that lags by more than consumerFallbehindThreshold",
        mutable=True,
    )
    consumer_fallbehind_threshold: int = key(
        "consumerFallbehindThreshold",
        17179869184,
        "bytes of the log, for disableConsumeIfConsumerReadSlowly",
        is_long=True,
        mutable=True,
    )
    broker_fast_failure_enable: bool = key(
        "brokerFastFailureEnable",
        True,
        "refuse sends that waited for longer than waitTimeMillsInSendQueue",
        mutable=True,
    )
    wait_time_mills_in_send_queue: int = key(
        "waitTimeMillsInSendQueue",
        200,
        "ms, for brokerFastFailureEnable",
        is_long=True,
        mutable=True,
    )
    start_accept_send_request_time_stamp: int = key(
        "startAcceptSendRequestTimeStamp",
        0,
        "ms since 1970 before which sends are refused",
        is_long=True,
        mutable=True,
    )
    trace_on: bool = key(
        "traceOn", True, "tell clients to trace the messages of this broker", mutable=True
    )
    enable_calc_filter_bit_map: bool = key(
        "enableCalcFilterBitMap",
        False,
        "compute filters of SQL92 when a message is stored, and keep the result with its "
        "queue entry",
    )
    expect_consumer_num_use_filter: int = key(
        "expectConsumerNumUseFilter",
        32,
        "consumer groups with filters for which the result has room",
        least=1,
        most=100000,
    )
    max_error_rate_of_bloom_filter: int = key(
        "maxErrorRateOfBloomFilter", 20, "% of wrong hits in the result", least=1, most=99
    )
    filter_data_clean_time_span: int = key(
        "filterDataCleanTimeSpan",
        86400000,
        "ms for which the filter of a group without consumers is kept",
        is_long=True,
        mutable=True,
    )
    filter_support_retry: bool = key(
        "filterSupportRetry", False, "filters of SQL92 hold for retries, too", mutable=True
    )
    enable_property_filter: bool = key(
        "enablePropertyFilter", False, "consumers may subscribe by SQL92", mutable=True
    )
    compressed_register: bool = key(
        "compressedRegister", False, "compress registrations with name servers", mutable=True
    )
    force_register: bool = key(
        "forceRegister", True, "register also when nothing has changed", mutable=True
    )
    register_name_server_period: int = key(
        "registerNameServerPeriod",
        30000,
        "ms between two registrations; 10000 at least, 60000 at most",
        least=1,
    )
    transaction_time_out: int = key(
        "transactionTimeOut",
        6000,
        "ms after which a broker asks a producer about an open transaction",
        least=1,
        is_long=True,
        mutable=True,
    )
    transaction_check_max: int = key(
        "transactionCheckMax",
        15,
        "questions after which an open transaction is rolled back",
        least=1,
        mutable=True,
    )
    transaction_check_interval: int = key(
        "transactionCheckInterval",
        60000,
        "ms between two searches for open transactions",
        least=1,
        is_long=True,
        mutable=True,
    )
    acl_enable: bool = key(
        "aclEnable",
        False,
        "check signatures and permissions of clients by plain_acl.yml",
        local=Local.ACCESS,
        same_in_set=True,
    )
    store_reply_message_enable: bool = key(
        "storeReplyMessageEnable", True, "store the replies of request-reply", mutable=True
    )
    enable_detail_stat: bool = key("enableDetailStat", True, "count messages of each queue, too")
