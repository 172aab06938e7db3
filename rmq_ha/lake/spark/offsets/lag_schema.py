"""The columns of the table `lag` of verify-offsets."""

import pyarrow as pa

LAG = pa.schema(
    [
        ("slave", pa.string()),
        ("topic", pa.string()),
        ("group", pa.string()),
        ("queueId", pa.int32()),
        ("masterOffset", pa.int64()),
        ("slaveOffset", pa.int64()),
        ("slaveMinOffset", pa.int64()),
        ("slaveMaxOffset", pa.int64()),
        ("diff", pa.int64()),
        ("repeats", pa.int64()),
        ("skipped", pa.int64()),
        ("status", pa.string()),
    ]
)
"""A row for every group and queue, with the offsets of both sides."""
