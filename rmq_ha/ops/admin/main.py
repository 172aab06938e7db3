"""`rmqha-admin`: the table of all commands, with the module of each."""

import click

from rmq_ha.ops.admin.groups import Commands, Lazy
from rmq_ha.ops.admin.options import common_options

COMMANDS = {
    "produce": Lazy("rmq_ha.ops.admin.produce:produce", "Send messages."),
    "consume": Lazy("rmq_ha.ops.admin.consume:consume", "Consume as a member of a group."),
    "tail": Lazy("rmq_ha.ops.admin.tail:tail", "Show messages as they come, without a group."),
    "lag": Lazy("rmq_ha.ops.admin.offsets:lag", "How far a group is behind."),
    "reset-offset": Lazy("rmq_ha.ops.admin.offsets:reset_offset", "Have a group go on elsewhere."),
    "route": Lazy("rmq_ha.ops.admin.topic:route", "Where a topic is."),
    "cluster": Lazy("rmq_ha.ops.admin.cluster:cluster", "Clusters: list, ping, export, import."),
    "broker": Lazy("rmq_ha.ops.admin.broker:broker", "Brokers: list, status, settings, ..."),
    "top": Lazy("rmq_ha.ops.admin.top:top", "Rates, roles and lags, as they move."),
    "topic": Lazy("rmq_ha.ops.admin.topic:topic", "Topics: list, create, update, delete, ..."),
    "group": Lazy("rmq_ha.ops.admin.group:group", "Consumer groups: list, show, create, ..."),
    "acl": Lazy("rmq_ha.ops.admin.acl:acl", "Accounts: list, show, set, delete, version."),
    "stats": Lazy("rmq_ha.ops.admin.stats:stats", "Messages in, out, waiting, by topic and group."),
    "namesrv": Lazy("rmq_ha.ops.admin.namesrv:namesrv", "Name servers: their settings."),
    "kv": Lazy("rmq_ha.ops.admin.kv:kv", "Keys and values that name servers keep."),
    "connections": Lazy("rmq_ha.ops.admin.connections:connections", "Who is connected."),
    "dlq": Lazy("rmq_ha.ops.admin.dlq:dlq", "Dead letters: list, show, resend."),
    "ha": Lazy("rmq_ha.ops.admin.ha:ha", "Masters and slaves: status."),
    "timer": Lazy("rmq_ha.ops.admin.timer:timer", "What waits: by time, by topic, by level."),
    "transaction": Lazy(
        "rmq_ha.ops.admin.transaction:transaction", "Half messages that nobody has ended."
    ),
    "backup": Lazy("rmq_ha.ops.admin.backup:backup", "Copy a store while its broker runs."),
    "restore": Lazy("rmq_ha.ops.admin.backup:restore_command", "Make a store of a backup."),
    "init": Lazy("rmq_ha.ops.admin.init:init", "Write the files of a new pair, group, controller."),
    "promote": Lazy("rmq_ha.ops.admin.promote:promote", "Make a pair's slave its master."),
    "demote": Lazy("rmq_ha.ops.admin.demote:demote", "Bring a pair's old master back as a slave."),
    "handover": Lazy("rmq_ha.ops.admin.handover:handover", "Have a master or leader hand over."),
    "doctor": Lazy("rmq_ha.ops.admin.doctor.command:doctor", "What is wrong, why, what to do."),
    "bundle": Lazy("rmq_ha.ops.admin.bundle:bundle", "One archive for support, without secrets."),
    "dledger": Lazy("rmq_ha.ops.admin.dledger:dledger", "A DLedger group: its members, who leads."),
    "verify-offsets": Lazy(
        "rmq_ha.lake.spark.offsets.command:plain_verify_offsets",
        "Safe to fail over? What would repeat?",
        "scan",
    ),
    "verify-replica": Lazy(
        "rmq_ha.lake.spark.replica.command:plain_verify_replica",
        "Do two stores hold the same, to the byte?",
        "scan",
    ),
    "verify-fleet": Lazy(
        "rmq_ha.lake.spark.fleet_command:plain_verify_fleet",
        "Is every broker right, by what rmqha-scan keeps?",
        "scan",
    ),
    "audit-messages": Lazy(
        "rmq_ha.lake.spark.audit.command:plain_audit_messages",
        "Was what was sent stored and delivered?",
        "scan",
    ),
    "snapshot": Lazy("rmq_ha.ops.admin.snapshot:snapshot", "Keep a broker's offsets."),
    "message": Lazy("rmq_ha.ops.admin.message:message", "Messages by id, key, place; traces."),
    "setaside": Lazy(
        "rmq_ha.ops.admin.setaside:setaside",
        "Messages that were set aside: list, show, resend.",
    ),
    "store": Lazy("rmq_ha.ops.admin.store:store", "A stopped store: verify, dump, repair."),
    "context": Lazy("rmq_ha.ops.admin.context:context", "Clusters by name, with their keys."),
    "completion": Lazy("rmq_ha.ops.admin.completion:completion", "For bash, zsh or fish."),
}


@click.group(cls=Commands, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rmq-ha", prog_name="rmqha-admin")
@common_options
def main() -> None:
    """
    Operate a RocketMQ 4.9 cluster of rmq-ha or of Java brokers.

    The options stand before or after the command's name. Exit codes: 0 done; 1 refused or failed; 2
    wrong usage; 3 nothing found; 4 a server does not answer.
    """
