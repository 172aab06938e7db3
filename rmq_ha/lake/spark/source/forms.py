"""The forms of columns of messages, and the tables of a broker, as texts. They need no Spark."""

ROCKETMQ, KAFKA = "rocketmq", "kafka"
FORMS = (ROCKETMQ, KAFKA)
_OF_QUEUE = "brokerName:string topic:string queueId:int"
_VERSION = "dataVersionTimestamp:long dataVersionCounter:long"
TABLES = {
    "consumerOffsets": "brokerName:string group:string topic:string queueId:int offset:long",
    "topics": (
        "brokerName:string topic:string readQueueNums:int writeQueueNums:int perm:int"
        f" topicFilterType:string topicSysFlag:int order:boolean {_VERSION}"
    ),
    "groups": (
        "brokerName:string group:string consumeEnable:boolean consumeFromMinEnable:boolean"
        " consumeBroadcastEnable:boolean retryQueueNums:int retryMaxTimes:int brokerId:long"
        f" whichBrokerWhenConsumeSlowly:long notifyConsumerIdsChangedEnable:boolean {_VERSION}"
    ),
    "delayOffsets": "brokerName:string delayLevel:int offset:long",
    "queues": f"{_OF_QUEUE} minOffset:long maxOffset:long",
    "consumeQueue": f"{_OF_QUEUE} queueOffset:long commitLogOffset:long size:int tagsCode:long",
    "index": (
        "brokerName:string file:string item:int slot:int keyHash:int commitLogOffset:long"
        " storeTimestamp:timestamp previousItem:int"
    ),
}
"""The columns of each table of a broker."""
