"""The command `rmqha-spark`, with the table of all jobs and the module of each."""

from typing import Any

import click

from rmq_ha.ops.admin.groups import Commands, Lazy

COMMANDS = {
    "verify-offsets": Lazy(
        "rmq_ha.lake.spark.offsets.command:verify_offsets",
        "Can I fail over now, and what would repeat or be lost?",
        "spark",
    ),
    "verify-fleet": Lazy(
        "rmq_ha.lake.spark.fleet_command:verify_fleet",
        "The same of all brokers, by what rmqha-scan keeps of their stores.",
        "spark",
    ),
    "verify-replica": Lazy(
        "rmq_ha.lake.spark.replica.command:verify_replica",
        "Do two stores hold the same, to the byte?",
        "spark",
    ),
    "audit-messages": Lazy(
        "rmq_ha.lake.spark.audit.command:audit_messages",
        "Was what was sent stored and delivered, once and in order?",
        "spark",
    ),
    "archive": Lazy(
        "rmq_ha.lake.spark.archive.command:archive",
        "Cold messages to Parquet, each exactly once.",
        "spark",
    ),
    "replay": Lazy(
        "rmq_ha.lake.spark.archive.command:replay", "Archived messages back into a topic.", "spark"
    ),
    "snapshot": Lazy(
        "rmq_ha.ops.admin.snapshot:snapshot", "Keep a broker's offsets for a history."
    ),
    "pack": Lazy(
        "rmq_ha.lake.spark.tools:pack",
        "Write a zip of rmq-ha for spark-submit --py-files.",
        "spark",
    ),
    "java-home": Lazy(
        "rmq_ha.lake.spark.tools:java_home", "The JAVA_HOME to run Spark with.", "spark"
    ),
}
_FAILED = 4


class Jobs(Commands):
    """The group of the jobs. Each job exits with the code of its result."""

    def invoke(self, context: click.Context) -> Any:
        """Run a job. Ctrl-C before it begins exits with 4: click's 1 would mean `violated`."""
        try:
            return super().invoke(context)
        except KeyboardInterrupt:
            click.echo("failed: interrupted, so there is no verdict; run it again")
            context.exit(_FAILED)


@click.group(cls=Jobs, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """
    Judge RocketMQ 4.9 brokers and stores, of rmq-ha or of Java, with Spark.

    Exit codes of the jobs: 0 the checked property holds; 1 it is violated; 2 wrong usage; 3 the job
    could not decide (an input is missing, unreadable or changing); 4 the job failed.
    """


if __name__ == "__main__":
    main()
