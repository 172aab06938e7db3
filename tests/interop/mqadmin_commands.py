"""Every sub-command of mqadmin 4.9.7, and where its output may differ from that against Java."""

from __future__ import annotations

import re
from typing import NamedTuple

from rmq_ha.base.config.controller_mode_keys import ControllerModeConfig
from rmq_ha.base.config.fields import FirstReader, keys_of
from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.config.own_keys import RmqHaConfig

Command = tuple[str, ...]

# Words that `Side.filled` replaces: MASTER, SLAVE, CLIENT, FILES, UNIQ, OFFSETID. In this order:
# some change what later ones show.
COMMANDS: list[Command] = [
    tuple(line.split())
    for line in """
    clusterList
    clusterList -m
    topicList
    topicList -c
    topicRoute -t Adm
    topicRoute -t Adm -l
    topicClusterList -t Adm
    topicStatus -t Adm
    topicStatus -t Trans
    topicStatus -t Nope
    allocateMQ -t Adm -i 10.0.0.1,10.0.0.2
    brokerStatus -b MASTER
    brokerStatus -b SLAVE
    brokerStatus -c PeerCluster
    brokerConsumeStats -b MASTER
    brokerConsumeStats -b MASTER -o true
    brokerConsumeStats -b MASTER -l 3
    queryMsgById -i OFFSETID
    queryMsgById -i OFFSETID -g g-adm -d CLIENT
    queryMsgByKey -t Adm -k q1-2
    queryMsgByUniqueKey -t Adm -i UNIQ
    queryMsgByUniqueKey -t Adm -i UNIQ -a
    queryMsgByUniqueKey -t Adm -i UNIQ -g g-adm -d CLIENT
    queryMsgByOffset -t Adm -b broker-a -i 1 -o 2
    queryMsgByOffset -t Adm -b broker-a -i 1 -o 200
    DecodeMessageId -i OFFSETID
    printMsg -t Other -d true
    printMsgByQueue -t Adm -a broker-a -i 1 -p true -d true -f true
    consumeMessage -t Adm -b broker-a -i 1 -o 1 -c 2
    producerConnection -g harness-producer -t Adm
    producerConnection -g none -t Adm
    @eventually producer -b MASTER
    @eventually producer -b SLAVE
    consumerConnection -g g-adm
    consumerConnection -g g-adm -b MASTER
    consumerConnection -g none
    consumerProgress
    consumerProgress -g g-adm
    consumerProgress -g g-adm -s true
    consumerProgress -g g-off
    consumerProgress -g none
    consumerStatus -g g-adm
    consumerStatus -g g-adm -i CLIENT
    consumerStatus -g g-adm -i CLIENT -s
    consumer -g g-adm
    getConsumerStatus -g g-adm -t Adm
    getConsumerStatus -g g-adm -t Adm -i CLIENT
    cloneGroupOffset -s g-off -d g-clone -t Other
    consumerProgress -g g-clone
    queryCq -t Adm -q 1 -i 0 -c 3
    queryCq -t Adm -q 1 -i 0 -c 3 -b MASTER -g g-adm
    queryCq -t Adm -q 1 -i 0 -c 2 -b SLAVE
    queryCq -t Adm -q 77 -i 0
    queryCq -t Adm -q 1 -i 99
    queryCq -t Adm -q 1 -i 1 -g none
    updateKvConfig -s NS1 -k K1 -v V1
    deleteKvConfig -s NS1 -k K1
    updateOrderConf -t Ordered -m put -v broker-a:3
    updateOrderConf -t Ordered -m get
    updateOrderConf -t Ordered -m delete
    updateOrderConf -t Ordered -m get
    updateTopic -c PeerCluster -t Ordered -r 3 -w 3 -o true
    topicRoute -t Ordered
    updateTopic -b MASTER -t Unit -r 2 -w 2 -u true -s true
    updateTopic -b SLAVE -t OnSlave -r 2 -w 2
    updateTopic -b MASTER -t TBW102
    updateTopicPerm -b MASTER -t Ordered -p 4
    updateTopicPerm -c PeerCluster -t Ordered -p 6
    topicRoute -t Ordered
    wipeWritePerm -b broker-a
    topicRoute -t Adm
    addWritePerm -b broker-a
    topicRoute -t Adm
    resetOffsetByTime -g g-adm -t Adm -s now
    resetOffsetByTime -g g-off -t Other -s 0
    resetOffsetByTimeOld -g g-off -t Other -s 0
    resetOffsetByTime -g none -t Other -s 0
    skipAccumulatedMessage -g g-adm -t Adm
    skipAccumulatedMessage -g g-off -t Other
    cleanExpiredCQ -b MASTER
    cleanExpiredCQ -c PeerCluster
    deleteExpiredCommitLog -b MASTER
    cleanUnusedTopic -b MASTER
    checkMsgSendRT -t Adm -a 3 -s 10
    @for 1500 clusterRT -a 2 -s 10 -i 100
    sendMsgStatus -b broker-a -s 16 -c 3
    sendMessage -t Adm -p hello -k sent -c TagA -b broker-a -i 2
    sendMessage -t Adm -p traced -k traced -b broker-a -i 3 -m true
    @eventually queryMsgTraceById -i UNIQ
    getNamesrvConfig
    updateNamesrvConfig -k orderMessageEnable -v true
    updateNamesrvConfig -k kvConfigPath -v x
    getBrokerConfig -b MASTER
    getBrokerConfig -b SLAVE
    getBrokerConfig -c PeerCluster
    updateBrokerConfig -b MASTER -k deleteWhen -v 05
    updateBrokerConfig -c PeerCluster -k maxMessageSize -v 4194305
    updateSubGroup -b MASTER -g g-new -s true -m false -d false -q 2 -r 7 -i 0 -w 1 -a true
    updateSubGroup -c PeerCluster -g g-new2
    getConsumerConfig -g g-new
    deleteSubGroup -b MASTER -g g-new
    deleteSubGroup -c PeerCluster -g g-new2 -r true
    getConsumerConfig -g g-new
    exportMetadata -c PeerCluster -f FILES
    exportMetadata -b MASTER -f FILES -t
    exportMetadata -b MASTER -f FILES -g
    exportMetadata -b MASTER -f FILES -t -s
    exportConfigs -c PeerCluster -f FILES
    deleteTopic -c PeerCluster -t Unit
    topicRoute -t Unit
    deleteTopic -c PeerCluster -t TBW102
    clusterAclConfigVersion -b MASTER
    clusterAclConfigVersion -c PeerCluster
    getAclConfig -b MASTER
    updateAclConfig -b MASTER -a access-key -s secret-key
    updateAclConfig -b MASTER -a access-key -s secret-key -w 10.2.*.* -i PUB -u DENY -m true
    updateAclConfig -b MASTER -a access-key -s secret-key -t TopicX=SUB,TopicY=PUB|SUB -g GroupX=SUB
    updateAclConfig -c PeerCluster -a first-key -s other-secret
    updateAclConfig -b MASTER -a short -s x
    getAclConfig -c PeerCluster
    deleteAclConfig -b MASTER -a access-key
    deleteAclConfig -b MASTER -a unknown-key
    updateGlobalWhiteAddr -b MASTER -g 127.0.0.*,10.0.0.*
    updateGlobalWhiteAddr -c PeerCluster -g 127.0.0.1
    getAclConfig -b MASTER
    updateGlobalWhiteAddr -b MASTER -g 1.2.3
    @eventually brokerConsumeStats -b SLAVE
    @eventually exportMetadata -b SLAVE -f FILES
    startMonitoring
    """.splitlines()
    if line.strip()
]

# At times the tool ends before its trace has left. Then the traced message is sent again, so that
# its broker creates the topic of traces.
_TRACED = "sendMessage -t Adm -p traced -k traced -b broker-a -i 3 -m true"
SENT_AGAIN: dict[str, Command] = {"queryMsgTraceById": tuple(_TRACED.split(" "))}

# Before the first message leaves the last minute, which is all that a young broker can tell.
EARLY: list[Command] = [
    ("statsAll",),
    ("statsAll", "-a"),
    ("statsAll", "-t", "Adm"),
    ("exportMetrics", "-c", "PeerCluster", "-f", "FILES"),
]


class Difference(NamedTuple):
    """
    Lines that one side alone prints; patterns of whole masked lines, "" for none.

    :ivar commands: a pattern of the start of the command lines in which it occurs.
    """

    commands: str
    ours: str
    java: str
    why: str

    def concerns(self, command: Command) -> bool:
        return re.match(self.commands, " ".join(command)) is not None


# All that 4.9.7's name server has.
_JAVA_NAMESRV = {
    "rocketmqHome",
    "kvConfigPath",
    "configStorePath",
    "productEnvName",
    "clusterTest",
    "orderMessageEnable",
}
_KEYS_OF_OURS = keys_of(RmqHaConfig).keys() | keys_of(ControllerModeConfig).keys()
_SERVER_OF_OURS = {
    name for name, row in keys_of(NettyServerConfig).items() if row.since is FirstReader.OURS
}
_CAUSE = r"Caused by: \S+: CODE: \d+ DESC: "

DIFFERENCES = [
    Difference(
        "(topicStatus -t Nope|consumerConnection|consumerProgress|topicRoute -t Unit)",
        _CAUSE + r"No topic route info in name server for the topic: \S+; create it, or look .*",
        _CAUSE + r"No topic route info in name server for the topic: \S+",
        "our remark also says what to do",
    ),
    Difference(
        "resetOffsetByTime -g none",
        _CAUSE + r"THe consumer group <none> not exist: it has no offset on queue 0 .*",
        _CAUSE + r"THe consumer group <none> not exist",
        "our remark also says why",
    ),
    Difference(
        "queryCq -t Adm -q 1 -i 99",
        r"(=+|Queue data:|max: 5, min: 0)",
        r"java.lang.NullPointerException: .*",
        "Java answers success without a body, on which its own tool fails",
    ),
    Difference(
        "getNamesrvConfig",
        rf"({'|'.join(keys_of(NamesrvConfig).keys() - _JAVA_NAMESRV | _SERVER_OF_OURS)}) =.*",
        "",
        "keys of ours",
    ),
    Difference(
        "getNamesrvConfig",
        r"(configStorePath|kvConfigPath|rocketmqHome) =.*",
        r"(configStorePath|kvConfigPath|rocketmqHome) =.*",
        "the rig keeps the files of the two in other places; we need no rocketmqHome",
    ),
    Difference(
        "updateNamesrvConfig -k kvConfigPath",
        _CAUSE + r"kvConfigPath .* can only be changed in the properties file .*",
        _CAUSE + "Can not update config path",
        "our remark says which key, and where to change it",
    ),
    Difference(
        "getBrokerConfig",
        rf"({'|'.join(_KEYS_OF_OURS | _SERVER_OF_OURS)}) = .*",
        "",
        "keys of ours",
    ),
    Difference(
        "getBrokerConfig",
        "",
        r"(endTransactionThreadPoolNums|heartbeatThreadPoolNums|processReplyMessageThreadPoolNums"
        r"|pullMessageThreadPoolNums|putMessageFutureThreadPoolNums|queryMessageThreadPoolNums"
        r"|sendMessageThreadPoolNums) = \d+",
        "sizes of thread pools that Java computes from the machine; we have none",
    ),
    Difference(
        "getBrokerConfig",
        "",
        r"(messageStorePlugIn =|rocketmqHome = .*)",
        "we leave out what is empty, and need no rocketmqHome",
    ),
    Difference(
        "getBrokerConfig",
        r"(enableBatchPush = false|bitMapLengthConsumeQueueExt = 64)",
        r"(isEnableBatchPush = false|bitMapLengthConsumeQueueExt = 112)",
        "the first is named as the file has to name it; the second as it is set: Java replaces it "
        "by what it computes from the two settings of its Bloom filter",
    ),
    Difference(
        "exportMetadata -b MASTER -f FILES -t",
        r"\.dataVersion\.counter = \d+",
        r"\.dataVersion\.counter = \d+",
        "updateTopicPerm lets Java forget that a topic is ordered and learn it again from the name "
        "server, which are two versions; we keep it, which is one",
    ),
    Difference(
        "clusterAclConfigVersion",
        r"PeerCluster broker-a MASTER DIR/m-SIDE/plain_acl.yml \d+ TIME",
        r"PeerCluster broker-a MASTER DIR/m-SIDE/conf/plain_acl.yml \d+ TIME",
        "without rocketmqHome ours looks beside the properties file",
    ),
    Difference(
        "updateAclConfig -b MASTER -a short",
        _CAUSE + "accessKey and secretKey must both be given .*",
        _CAUSE + "The accessKey=short and secretKey=x cannot be null .*",
        "Java's remark repeats the secret",
    ),
    Difference(
        "deleteAclConfig -b MASTER -a unknown-key",
        _CAUSE + r"The accesskey\[unknown-key\] .* failed\. there is no account unknown-key",
        _CAUSE + r"The accesskey\[unknown-key\] .* failed\.",
        "our remark also says why",
    ),
    Difference(
        "updateGlobalWhiteAddr -b MASTER -g 1.2.3",
        r"(.*SubCommandException: UpdateGlobalWhiteAddrSubCommand command failed|"
        + _CAUSE
        + r"The globalWhiteAddresses\[REAL\.3\] .* failed\. 'REAL\.3' is no address.*)",
        "update global white remote addresses to MASTER success.",
        "Java stores what it cannot use, and then ignores the whole file",
    ),
]

# Upstream has these classes, but its tool does not list them: they are run all the same.
UNLISTED = {"consumer", "DecodeMessageId", "getConsumerStatus", "resetOffsetByTimeOld"}
# Of the listed ones none is left out; startMonitoring is only started: it reports to a log.

# Names and keys of VIEW_BROKER_STATS_DATA that both brokers must answer alike, right after the
# history: sums and averages of a minute.
STATS = [
    ("TOPIC_PUT_NUMS", "Adm"),
    ("TOPIC_PUT_SIZE", "Adm"),
    ("TOPIC_PUT_NUMS", "Other"),
    ("TOPIC_PUT_NUMS", "Trans"),
    ("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX"),
    ("TOPIC_PUT_SIZE", "SCHEDULE_TOPIC_XXXX"),
    ("TOPIC_PUT_NUMS", "RMQ_SYS_TRANS_HALF_TOPIC"),
    ("QUEUE_PUT_NUMS", "SCHEDULE_TOPIC_XXXX@0"),
    ("QUEUE_PUT_SIZE", "SCHEDULE_TOPIC_XXXX@0"),
    ("GROUP_GET_NUMS", "Adm@g-adm"),
    ("GROUP_GET_SIZE", "Adm@g-adm"),
    ("GROUP_GET_NUMS", "%RETRY%g-adm@g-adm"),
    ("GROUP_GET_NUMS", "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER"),
    ("GROUP_GET_SIZE", "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER"),
    ("QUEUE_GET_NUMS", "SCHEDULE_TOPIC_XXXX@0@SCHEDULE_CONSUMER"),
    ("SNDBCK_PUT_NUMS", "Adm@g-adm"),
    ("BROKER_PUT_NUMS", "PeerCluster"),
    ("GROUP_GET_FROM_DISK_NUMS", "Adm@g-adm"),
    ("TOPIC_PUT_NUMS", "nope"),
    ("NOPE", "Adm"),
]
# What Java does not count, or in another way.
STATS_OF_OURS = [
    ("QUEUE_PUT_NUMS", "Adm@1"),  # Java: only of delayed messages
    ("QUEUE_GET_NUMS", "Adm@1@g-adm"),  # Java: only of delayed messages
    ("GROUP_GET_FALL_SIZE", "1@Adm@g-adm"),  # Java: only to its log
    ("GROUP_GET_FALL_TIME", "1@Adm@g-adm"),
    ("GROUP_GET_LATENCY", "1@Adm@g-adm"),  # ms, in which no two runs agree
    ("BROKER_GET_NUMS", "PeerCluster"),  # Java: also its own reading of op messages
]
