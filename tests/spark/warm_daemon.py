"""
Spark's Python daemon with what workers import already there: each worker is a fork of it.

`pyspark.daemon` imports next to nothing, so each of the hundreds of workers that the tests start
would read pandas, pyarrow and the data source anew.
"""

import pandas  # noqa: F401
import pyarrow  # noqa: F401
from pyspark import daemon

import rmq_ha.lake.spark.source.datasource  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
