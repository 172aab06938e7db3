"""Rows that are wanted, chosen before their expensive columns are gathered."""

from typing import TYPE_CHECKING

import numpy as np

from rmq_ha.spark.source.pushdown import Keep

if TYPE_CHECKING:
    from rmq_ha.spark.log.records import Records


def kept(records: "Records", keep: Keep, broker_name: str | None = None) -> "Records":
    """
    The records that are wanted; what is cheap to look at is looked at first.

    :param broker_name: of the column `brokerName`.
    """
    for stage in keep.stages():
        if not len(records):
            break
        mask = np.asarray(stage.rows(records.batch(stage.columns, broker_name)))
        if not mask.all():
            records = records.select(mask)
    return records
