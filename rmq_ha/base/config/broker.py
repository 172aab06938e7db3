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
        "The installation directory. The broker looks for conf/plain_acl.yml below it.",
        local=Local.FILES,
    )
    namesrv_addr: str | None = key(
        "namesrvAddr",
        None,
        "The name servers at which this broker registers: host:port, separated by semicolons. A "
        "master without the key runs a name server of its own (embeddedNamesrvPort).",
        rule=ADDRESSES,
        local=Local.SENDS,
        dialled=True,
    )
    broker_ip1: str | None = key(
        "brokerIP1",
        None,
        "The address of this broker that name servers give to clients. It is also part of "
        "message ids. Set it on a machine with several addresses, or behind NAT. Empty: the "
        "first address of the machine.",
        local=Local.SENDS,
        resolved=True,
    )
    broker_ip2: str | None = key(
        "brokerIP2",
        None,
        "The address of this broker that name servers give to its slaves. Empty: the first "
        "address of the machine.",
        local=Local.SENDS,
        resolved=True,
    )
    broker_name: str | None = key(
        "brokerName",
        None,
        "The name that a master and its slaves share. Empty: the host name of the machine.",
        local=Local.IDENTITY,
    )
    broker_cluster_name: str = key(
        "brokerClusterName",
        "DefaultCluster",
        "The name of the cluster, which clients and operators see.",
        local=Local.IDENTITY,
        same_in_set=True,
    )
    broker_id: int = key(
        "brokerId",
        0,
        "0: this broker is a master. A number above 0: it is a slave; each slave of one "
        "brokerName needs a number of its own.",
        least=-1,
        is_long=True,
        local=Local.IDENTITY,
    )
    broker_permission: int = key(
        "brokerPermission",
        6,
        "What clients may do: 4 read, 2 write, 6 both. Write 4 before you take the broker out "
        "of service: name servers then tell producers to send to other brokers, while consumers "
        "read on.",
        most=7,
        mutable=True,
    )
    default_topic_queue_nums: int = key(
        "defaultTopicQueueNums",
        8,
        "The most queues of a topic that a send creates. The producer may ask for fewer.",
        least=1,
    )
    auto_create_topic_enable: bool = key(
        "autoCreateTopicEnable",
        True,
        "true: a send to an unknown topic creates the topic. Set false in production, so that a "
        "misspelt name is an error.",
        mutable=True,
        same_in_set=True,
    )
    cluster_topic_enable: bool = key(
        "clusterTopicEnable",
        True,
        "true: clients may read and write the topic that has the cluster's name.",
    )
    broker_topic_enable: bool = key(
        "brokerTopicEnable",
        True,
        "true: clients may read and write the topic that has the broker's name.",
    )
    auto_create_subscription_group: bool = key(
        "autoCreateSubscriptionGroup",
        True,
        "true: the broker creates an unknown consumer group when its first consumer asks. "
        "false: an operator has to create each group.",
        mutable=True,
        same_in_set=True,
    )
    message_store_plug_in: str = key(
        "messageStorePlugIn",
        "",
        "The names of plugins that wrap the message store, separated by commas.",
        local=Local.CODE,
    )
    msg_trace_topic_name: str = key(
        "msgTraceTopicName",
        "RMQ_SYS_TRACE_TOPIC",
        "The topic to which clients send message traces, if traceTopicEnable=true.",
    )
    trace_topic_enable: bool = key(
        "traceTopicEnable", False, "true: create the topic for message traces at the start."
    )
    flush_consumer_offset_interval: int = key(
        "flushConsumerOffsetInterval",
        5000,
        "How often the broker writes the consumer groups' offsets to consumerOffset.json, ms. "
        "After a crash a group may read as much again.",
        least=1,
    )
    reject_transaction_message: bool = key(
        "rejectTransactionMessage", False, "true: refuse transactional messages.", mutable=True
    )
    send_thread_pool_queue_capacity: int = key(
        "sendThreadPoolQueueCapacity",
        10000,
        "How many messages may wait for disk and replicas. Further sends are refused with "
        "SYSTEM_BUSY.",
        least=1,
        mutable=True,
    )
    reply_thread_pool_queue_capacity: int = key(
        "replyThreadPoolQueueCapacity",
        10000,
        "How many replies of request-reply may wait. Further replies are refused with SYSTEM_BUSY.",
        least=1,
    )
    long_polling_enable: bool = key(
        "longPollingEnable",
        True,
        "true: the broker holds a pull that finds no message until one comes or the client's "
        "time is over. false: it holds the pull for shortPollingTimeMills.",
        mutable=True,
    )
    short_polling_time_mills: int = key(
        "shortPollingTimeMills",
        1000,
        "For how many ms the broker holds a pull that finds no message, if "
        "longPollingEnable=false.",
        least=1,
        is_long=True,
        mutable=True,
    )
    notify_consumer_ids_changed_enable: bool = key(
        "notifyConsumerIdsChangedEnable",
        True,
        "true: tell the consumers of a group at once when a member comes or goes. false: they "
        "notice it at their own next look, every 20 s by default.",
        mutable=True,
    )
    region_id: str = key(
        "regionId",
        "DefaultRegion",
        "The name of the region in the message traces of clients.",
        mutable=True,
    )
    register_broker_timeout_mills: int = key(
        "registerBrokerTimeoutMills",
        6000,
        "How long the broker waits for a name server's answer to its registration, ms.",
        least=1,
        mutable=True,
    )
    slave_read_enable: bool = key(
        "slaveReadEnable",
        False,
        "true: the broker tells consumers that lag far behind to pull from a slave. This "
        "relieves the master's disk.",
        mutable=True,
    )
    disable_consume_if_consumer_read_slowly: bool = key(
        "disableConsumeIfConsumerReadSlowly",
        False,
        "true: the broker stops a consumer group that lags by more than "
        "consumerFallbehindThreshold, until an operator enables it again.",
        mutable=True,
    )
    consumer_fallbehind_threshold: int = key(
        "consumerFallbehindThreshold",
        17179869184,
        "The lag, in bytes of the commit log, above which disableConsumeIfConsumerReadSlowly "
        "stops a group.",
        is_long=True,
        mutable=True,
    )
    broker_fast_failure_enable: bool = key(
        "brokerFastFailureEnable",
        True,
        "true: while the broker is overloaded, it refuses sends that waited for longer than "
        "waitTimeMillsInSendQueue, so that producers try another broker.",
        mutable=True,
    )
    wait_time_mills_in_send_queue: int = key(
        "waitTimeMillsInSendQueue",
        200,
        "For how many ms a send may wait in an overloaded broker, if brokerFastFailureEnable=true.",
        is_long=True,
        mutable=True,
    )
    start_accept_send_request_time_stamp: int = key(
        "startAcceptSendRequestTimeStamp",
        0,
        "Until this time, in ms since 1970, the broker refuses sends. 0: it takes them at once.",
        is_long=True,
        mutable=True,
    )
    trace_on: bool = key(
        "traceOn",
        True,
        "true: the broker tells clients to trace the messages that they send to it, if the "
        "client has tracing on.",
        mutable=True,
    )
    enable_calc_filter_bit_map: bool = key(
        "enableCalcFilterBitMap",
        False,
        "true: the broker computes SQL92 filters once, when a message is stored, and keeps the "
        "result beside the message's queue entry. It needs enableConsumeQueueExt=true. Pulls "
        "with filters then read fewer messages.",
    )
    expect_consumer_num_use_filter: int = key(
        "expectConsumerNumUseFilter",
        32,
        "For how many consumer groups with filters the stored result of enableCalcFilterBitMap "
        "has room.",
        least=1,
        most=100000,
    )
    max_error_rate_of_bloom_filter: int = key(
        "maxErrorRateOfBloomFilter",
        20,
        "How many percent of the stored results of enableCalcFilterBitMap may be wrong hits. A "
        "wrong hit costs a second look at the message, and no consumer sees it. A smaller value "
        "takes more room.",
        least=1,
        most=99,
    )
    filter_data_clean_time_span: int = key(
        "filterDataCleanTimeSpan",
        86400000,
        "For how many ms the broker keeps the filter of a group that has no consumers.",
        is_long=True,
        mutable=True,
    )
    filter_support_retry: bool = key(
        "filterSupportRetry",
        False,
        "true: SQL92 filters also apply to messages that are delivered again after a failure.",
        mutable=True,
    )
    enable_property_filter: bool = key(
        "enablePropertyFilter",
        False,
        "true: consumers may subscribe with SQL92 expressions.",
        mutable=True,
    )
    compressed_register: bool = key(
        "compressedRegister",
        False,
        "true: compress registrations for name servers. Set it if the broker has tens of "
        "thousands of topics.",
        mutable=True,
    )
    force_register: bool = key(
        "forceRegister",
        True,
        "true: register at every period. false: register only if a name server does not know "
        "the newest tables of this broker.",
        mutable=True,
    )
    register_name_server_period: int = key(
        "registerNameServerPeriod",
        30000,
        "How often the broker registers at the name servers, ms. Values below 10000 count as "
        "10000, and values above 60000 as 60000.",
        least=1,
    )
    transaction_time_out: int = key(
        "transactionTimeOut",
        6000,
        "How many ms after a half message the broker first asks its producer whether the "
        "transaction is committed.",
        least=1,
        is_long=True,
        mutable=True,
    )
    transaction_check_max: int = key(
        "transactionCheckMax",
        15,
        "How many times the broker asks about an open transaction before it rolls the "
        "transaction back.",
        least=1,
        mutable=True,
    )
    transaction_check_interval: int = key(
        "transactionCheckInterval",
        60000,
        "How often the broker looks for open transactions, ms.",
        least=1,
        is_long=True,
        mutable=True,
    )
    acl_enable: bool = key(
        "aclEnable",
        False,
        "true: check the signature and the permissions of each client by plain_acl.yml. false: "
        "everybody who reaches the port may do everything.",
        local=Local.ACCESS,
        same_in_set=True,
    )
    store_reply_message_enable: bool = key(
        "storeReplyMessageEnable",
        True,
        "true: store the replies of request-reply, besides pushing them to the client that asked.",
        mutable=True,
    )
    enable_detail_stat: bool = key(
        "enableDetailStat",
        True,
        "true: count messages for each queue, too. false: count them for each topic only.",
    )
