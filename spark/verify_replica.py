"""`spark-submit spark/verify_replica.py ...`: the same as `rmqha-spark verify-replica ...`."""

import sys

from rmq_ha.lake.spark.cli import main

if __name__ == "__main__":
    main(["verify-replica", *sys.argv[1:]], prog_name="rmqha-spark")
