"""`spark-submit lake/spark/archive.py ...`: the same as `rmqha-spark archive ...`."""

import sys

from rmq_ha.lake.spark.cli import main

if __name__ == "__main__":
    main(["archive", *sys.argv[1:]], prog_name="rmqha-spark")
