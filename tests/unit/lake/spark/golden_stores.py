"""Stores that Java's broker wrote, and what the broker's own codec reads in them."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.model.properties import KEYS, TAGS, UNIQ_KEY
from rmq_ha.base.store_format.commitlog import (
    BLANK_MAGIC,
    MESSAGE_MAGIC,
    body_crc,
    decode_record,
)
from rmq_ha.client.rules.messages import message_of

FIXTURES = Path(__file__).parents[3] / "fixtures" / "store"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def java_store(name: str, scratch: Path) -> Path:
    """Unpack one: `clean`, `ext`, `killed` or `torn`."""
    shutil.unpack_archive(FIXTURES / f"{name}.tar.gz", scratch)
    return next(path.parent for path in scratch.rglob("checkpoint"))


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store `clean`, for all tests of a file: none of them changes it."""
    return java_store("clean", tmp_path_factory.mktemp("java"))


def rows_of_log(store: Path, broker: str | None) -> list[dict[str, Any]]:
    """Every record of a log, read one by one by the broker's codec."""
    found = []
    for file in sorted((store / "commitlog").iterdir()):
        data, position = file.read_bytes(), 0
        while position + 8 <= len(data):
            size, magic = (
                int.from_bytes(data[position : position + 4], "big"),
                int.from_bytes(data[position + 4 : position + 8], "big"),
            )
            if magic != MESSAGE_MAGIC:
                assert magic in (0, BLANK_MAGIC)
                break
            found.append(_row(decode_record(data, position), broker))
            position += size
    return found


def _row(record: Any, broker: str | None) -> dict[str, Any]:
    message = message_of(record)
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.commit_log_offset,
        "msgId": message.msg_id,
        "keys": message.properties.get(KEYS),
        "tags": message.properties.get(TAGS),
        "body": message.body,
        "properties": message.properties,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": EPOCH + timedelta(milliseconds=message.born_timestamp),
        "bornHost": str(message.born_host),
        "storeTimestamp": EPOCH + timedelta(milliseconds=message.store_timestamp),
        "storeHost": str(message.store_host),
        "bodyCRC": message.body_crc,
        "reconsumeTimes": message.reconsume_times,
        "brokerName": broker,
        "storeSize": message.store_size,
        "crcOk": not record.body or body_crc(record.body) == record.body_crc,
        "uniqKey": message.properties.get(UNIQ_KEY),
        "preparedTransactionOffset": message.prepared_transaction_offset,
    }


def read_records(store: Any, offsets: Any, sizes: Any) -> Any:
    """The records of a `StoreDirectory` at these places, picked as a reader of a queue does."""
    import numpy as np

    from rmq_ha.lake.scan.store.picking import pick_records

    places, lengths = np.asarray(offsets, np.int64), np.asarray(sizes, np.int64)
    return pick_records(store.files, store.log_files(), places, lengths, store.max_offset())
