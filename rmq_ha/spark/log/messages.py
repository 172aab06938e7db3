"""The same columns from messages that came over the wire."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rmq_ha.client.messages import MessageExt
from rmq_ha.model.flags import COMPRESSION_MASK
from rmq_ha.model.properties import KEYS, TAGS, UNIQ_KEY, encode_properties
from rmq_ha.spark.log.columns import ARROW, repeated, schema_of, times
from rmq_ha.store.format.commitlog import RECORD_OVERHEAD, body_crc


def batch_of_messages(
    messages: Iterable[MessageExt], columns: Sequence[str], broker_name: str | None = None
) -> Any:
    """
    Messages as one Arrow batch, equal to what `Records.batch` makes of their records.

    `crcOk` is null where it cannot be told: of a body that was decompressed on the way.

    :param broker_name: None: what each message says.
    """
    held = list(messages)
    schema = schema_of(columns)
    arrays = []
    for name in columns:
        if name == "brokerName" and broker_name is not None:
            arrays.append(repeated(broker_name, len(held)))
        elif name in ("bornTimestamp", "storeTimestamp"):
            arrays.append(times(np.array([_VALUE[name](message) for message in held], np.int64)))
        else:
            arrays.append(pa.array([_VALUE[name](message) for message in held], ARROW[name]))
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(held), pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _crc_ok(message: MessageExt) -> bool | None:
    if not message.body or body_crc(message.body) == message.body_crc:
        return True
    around = RECORD_OVERHEAD + 12 * (message.born_host.is_v6 + message.store_host.is_v6)
    around += len(message.topic.encode()) + len(encode_properties(message.properties).encode())
    # a separator may stand behind the last property
    as_stored = message.store_size - around - len(message.body) in (0, 1)
    return False if as_stored and not message.sys_flag & COMPRESSION_MASK else None


_VALUE: dict[str, Callable[[MessageExt], Any]] = {
    "topic": lambda message: message.topic,
    "queueId": lambda message: message.queue_id,
    "queueOffset": lambda message: message.queue_offset,
    "commitLogOffset": lambda message: message.commit_log_offset,
    "msgId": lambda message: message.msg_id,
    "keys": lambda message: message.properties.get(KEYS),
    "tags": lambda message: message.properties.get(TAGS),
    "body": lambda message: message.body,
    "properties": lambda message: list(message.properties.items()),
    "flag": lambda message: message.flag,
    "sysFlag": lambda message: message.sys_flag,
    "bornTimestamp": lambda message: message.born_timestamp,
    "bornHost": lambda message: str(message.born_host),
    "storeTimestamp": lambda message: message.store_timestamp,
    "storeHost": lambda message: str(message.store_host),
    "bodyCRC": lambda message: message.body_crc,
    "reconsumeTimes": lambda message: message.reconsume_times,
    "brokerName": lambda message: message.broker_name or None,
    "storeSize": lambda message: message.store_size,
    "crcOk": _crc_ok,
    "uniqKey": lambda message: message.properties.get(UNIQ_KEY),
    "preparedTransactionOffset": lambda message: message.prepared_transaction_offset,
}
