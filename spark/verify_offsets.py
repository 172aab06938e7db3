"""`spark-submit spark/verify_offsets.py ...`: the same as `rmqha-spark verify-offsets ...`."""

import sys

from rmq_ha.lake.spark.cli import main

if __name__ == "__main__":
    main(["verify-offsets", *sys.argv[1:]], prog_name="rmqha-spark")
