"""The columns of messages and tables, as texts and as Arrow has them. They need no Spark."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

ROCKETMQ, KAFKA = "rocketmq", "kafka"
FORMS = (ROCKETMQ, KAFKA)
MESSAGE = (
    "topic:string queueId:int queueOffset:long commitLogOffset:long msgId:string keys:string"
    " tags:string body:binary properties:map flag:int sysFlag:int bornTimestamp:timestamp"
    " bornHost:string storeTimestamp:timestamp storeHost:string bodyCRC:int reconsumeTimes:int"
    " brokerName:string"
)
"""The columns of a read, in this order; `properties` only with `includeProperties`."""
ON_REQUEST = "storeSize:int crcOk:boolean uniqKey:string preparedTransactionOffset:long"
"""Further columns that a user's schema may name."""
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
_KINDS = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "map": pa.map_(pa.string(), pa.string()),
}


def arrow_schema(columns: Sequence[str]) -> Any:
    """Return the Arrow schema of some columns of messages."""
    kinds = dict(word.split(":") for word in f"{MESSAGE} {ON_REQUEST}".split())
    return pa.schema([(name, _KINDS[kinds[name]]) for name in columns])
