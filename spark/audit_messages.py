"""`spark-submit spark/audit_messages.py ...`: the same as `rmqha-spark audit-messages ...`."""

import sys

from rmq_ha.lake.spark.cli import main

if __name__ == "__main__":
    main(["audit-messages", *sys.argv[1:]], prog_name="rmqha-spark")
