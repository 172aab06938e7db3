"""BrokerConfig: the keys that shape the broker.

Spec: store.md, section 13.
"""

from dataclasses import dataclass

from rmq_ha.base.config.fields import key


@dataclass(slots=True, kw_only=True)
class BrokerConfig:
    """The broker keys of a broker properties file."""

    rocketmq_home: str | None = key("rocketmqHome", None, "installation directory")
    namesrv_addr: str | None = key("namesrvAddr", None, "name servers")
    broker_ip1: str | None = key("brokerIP1", None, "address for clients, storeHost")
    broker_ip2: str | None = key("brokerIP2", None, "address for HA")
    broker_name: str | None = key("brokerName", None, "name of the master/slave set")
    broker_cluster_name: str = key("brokerClusterName", "DefaultCluster", "cluster")
    broker_id: int = key("brokerId", 0, "0 master, > 0 slave")
    broker_permission: int = key("brokerPermission", 6, "4 read, 2 write")
    default_topic_queue_nums: int = key("defaultTopicQueueNums", 8, "queues of TBW102")
    auto_create_topic_enable: bool = key("autoCreateTopicEnable", True, "autoCreateTopicEnable")
    cluster_topic_enable: bool = key("clusterTopicEnable", True, "store.md §12.2")
    broker_topic_enable: bool = key("brokerTopicEnable", True, "store.md §12.2")
    auto_create_subscription_group: bool = key(
        "autoCreateSubscriptionGroup", True, "autoCreateSubscriptionGroup"
    )
    message_store_plug_in: str = key("messageStorePlugIn", "", "store plug-in classes")
    msg_trace_topic_name: str = key("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", "msgTraceTopicName")
    trace_topic_enable: bool = key("traceTopicEnable", False, "create the trace topic")
    send_message_thread_pool_nums: int | None = key(
        "sendMessageThreadPoolNums", None, "sendMessageThreadPoolNums"
    )
    put_message_future_thread_pool_nums: int | None = key(
        "putMessageFutureThreadPoolNums", None, "(default: min(c, 4))"
    )
    pull_message_thread_pool_nums: int | None = key(
        "pullMessageThreadPoolNums", None, "(default: 16 + 2c)"
    )
    process_reply_message_thread_pool_nums: int | None = key(
        "processReplyMessageThreadPoolNums", None, "(default: 16 + 2c)"
    )
    query_message_thread_pool_nums: int | None = key(
        "queryMessageThreadPoolNums", None, "(default: 8 + c)"
    )
    admin_broker_thread_pool_nums: int = key(
        "adminBrokerThreadPoolNums", 16, "adminBrokerThreadPoolNums"
    )
    client_manage_thread_pool_nums: int = key(
        "clientManageThreadPoolNums", 32, "clientManageThreadPoolNums"
    )
    consumer_manage_thread_pool_nums: int = key(
        "consumerManageThreadPoolNums", 32, "consumerManageThreadPoolNums"
    )
    heartbeat_thread_pool_nums: int | None = key(
        "heartbeatThreadPoolNums", None, "(default: min(32, c))"
    )
    end_transaction_thread_pool_nums: int | None = key(
        "endTransactionThreadPoolNums",
        None,
        "(default: max(8 + 2c, 4 × sendMessageThreadPoolNums default))",
    )
    flush_consumer_offset_interval: int = key(
        "flushConsumerOffsetInterval", 5000, "ms between consumerOffset.json writes"
    )
    flush_consumer_offset_history_interval: int = key(
        "flushConsumerOffsetHistoryInterval", 60000, "unused"
    )
    reject_transaction_message: bool = key(
        "rejectTransactionMessage", False, "refuse half messages"
    )
    fetch_namesrv_addr_by_address_server: bool = key(
        "fetchNamesrvAddrByAddressServer", False, "name servers over HTTP"
    )
    send_thread_pool_queue_capacity: int = key(
        "sendThreadPoolQueueCapacity", 10000, "sendThreadPoolQueueCapacity"
    )
    put_thread_pool_queue_capacity: int = key(
        "putThreadPoolQueueCapacity", 10000, "putThreadPoolQueueCapacity"
    )
    pull_thread_pool_queue_capacity: int = key(
        "pullThreadPoolQueueCapacity", 100000, "pullThreadPoolQueueCapacity"
    )
    reply_thread_pool_queue_capacity: int = key(
        "replyThreadPoolQueueCapacity", 10000, "replyThreadPoolQueueCapacity"
    )
    query_thread_pool_queue_capacity: int = key(
        "queryThreadPoolQueueCapacity", 20000, "queryThreadPoolQueueCapacity"
    )
    client_manager_thread_pool_queue_capacity: int = key(
        "clientManagerThreadPoolQueueCapacity", 1000000, "clientManagerThreadPoolQueueCapacity"
    )
    consumer_manager_thread_pool_queue_capacity: int = key(
        "consumerManagerThreadPoolQueueCapacity", 1000000, "consumerManagerThreadPoolQueueCapacity"
    )
    heartbeat_thread_pool_queue_capacity: int = key(
        "heartbeatThreadPoolQueueCapacity", 50000, "heartbeatThreadPoolQueueCapacity"
    )
    end_transaction_pool_queue_capacity: int = key(
        "endTransactionPoolQueueCapacity", 100000, "endTransactionPoolQueueCapacity"
    )
    filter_server_nums: int = key("filterServerNums", 0, "unused")
    long_polling_enable: bool = key("longPollingEnable", True, "hold pulls")
    short_polling_time_mills: int = key(
        "shortPollingTimeMills", 1000, "hold time and sweep without long polling"
    )
    notify_consumer_ids_changed_enable: bool = key(
        "notifyConsumerIdsChangedEnable", True, "announce membership changes"
    )
    high_speed_mode: bool = key("highSpeedMode", False, "unused in 4.9.7")
    commercial_enable: bool = key("commercialEnable", True, "unused in 4.9.7")
    max_delay_time: int = key("maxDelayTime", 40, "unused in 4.9.7")
    commercial_timer_count: int = key(
        "commercialTimerCount", 1, "only the last is read (statistics)"
    )
    commercial_trans_count: int = key(
        "commercialTransCount", 1, "only the last is read (statistics)"
    )
    commercial_big_count: int = key("commercialBigCount", 1, "only the last is read (statistics)")
    commercial_base_count: int = key("commercialBaseCount", 1, "only the last is read (statistics)")
    transfer_msg_by_heap: bool = key(
        "transferMsgByHeap", True, "copy pulled messages instead of file regions"
    )
    region_id: str = key("regionId", "DefaultRegion", "trace")
    register_broker_timeout_mills: int = key(
        "registerBrokerTimeoutMills", 6000, "name-server registration"
    )
    slave_read_enable: bool = key("slaveReadEnable", False, "store.md §8.4")
    disable_consume_if_consumer_read_slowly: bool = key(
        "disableConsumeIfConsumerReadSlowly", False, "disable a group that lags too far"
    )
    consumer_fallbehind_threshold: int = key(
        "consumerFallbehindThreshold", 17179869184, "bytes for the above"
    )
    broker_fast_failure_enable: bool = key(
        "brokerFastFailureEnable", True, "clear over-aged queued requests"
    )
    wait_time_mills_in_send_queue: int = key(
        "waitTimeMillsInSendQueue", 200, "max ms in the send queue"
    )
    wait_time_mills_in_pull_queue: int = key(
        "waitTimeMillsInPullQueue", 5000, "waitTimeMillsInPullQueue"
    )
    wait_time_mills_in_heartbeat_queue: int = key(
        "waitTimeMillsInHeartbeatQueue", 31000, "waitTimeMillsInHeartbeatQueue"
    )
    wait_time_mills_in_transaction_queue: int = key(
        "waitTimeMillsInTransactionQueue", 3000, "waitTimeMillsInTransactionQueue"
    )
    start_accept_send_request_time_stamp: int = key(
        "startAcceptSendRequestTimeStamp", 0, "refuse sends before this time"
    )
    trace_on: bool = key("traceOn", True, "trace flag told to clients")
    enable_calc_filter_bit_map: bool = key("enableCalcFilterBitMap", False, "store.md §6.2")
    expect_consumer_num_use_filter: int = key("expectConsumerNumUseFilter", 32, "bloom n")
    max_error_rate_of_bloom_filter: int = key("maxErrorRateOfBloomFilter", 20, "bloom error %")
    filter_data_clean_time_span: int = key(
        "filterDataCleanTimeSpan", 86400000, "ms a dead filter is kept"
    )
    filter_support_retry: bool = key("filterSupportRetry", False, "SQL filter on retry topics too")
    enable_property_filter: bool = key("enablePropertyFilter", False, "allow SQL subscriptions")
    compressed_register: bool = key("compressedRegister", False, "compress registration body")
    force_register: bool = key("forceRegister", True, "register even if unchanged")
    register_name_server_period: int = key(
        "registerNameServerPeriod", 30000, "ms, clamped 10000…60000"
    )
    transaction_time_out: int = key("transactionTimeOut", 6000, "store.md §11.3")
    transaction_check_max: int = key("transactionCheckMax", 15, "store.md §11.3")
    transaction_check_interval: int = key("transactionCheckInterval", 60000, "store.md §11.3")
    acl_enable: bool = key("aclEnable", False, "aclEnable")
    store_reply_message_enable: bool = key(
        "storeReplyMessageEnable", True, "store request/reply answers"
    )
    enable_detail_stat: bool = key("enableDetailStat", True, "enableDetailStat")
    auto_delete_unused_stats: bool = key("autoDeleteUnusedStats", False, "autoDeleteUnusedStats")
    isolate_log_enable: bool = key("isolateLogEnable", False, "log directory per broker")
