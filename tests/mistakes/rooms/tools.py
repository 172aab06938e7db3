"""Commands of an administrator: typed wrongly, at the wrong moment, or at the wrong server."""

from __future__ import annotations

import os
import signal

from tests.mistakes.bench import Bench
from tests.mistakes.mistake import Room
from tests.mistakes.rooms.between import shifted, whole

TOOLS = Room("Commands")
MADE_BY_HAND = "autoCreateSubscriptionGroup=false\nautoCreateTopicEnable=false\n"


@TOOLS.add("no name server is named", cause="name server", fix="NAMESRV_ADDR")
def nobody_named(bench: Bench) -> str:
    return bench.run("rmqha-admin", "topic", "list")


@TOOLS.add("name servers separated by a comma", cause="127.0.0.1:9876,127.0.0.1:9877", fix=";")
def commas_typed(bench: Bench) -> str:
    both = f"{bench.at('namesrv')},{bench.at('second')}"
    return bench.run("rmqha-admin", "topic", "list", "-n", both)


@TOOLS.add("a name server that does not run", cause="127.0.0.1:9876", fix="refused")
def no_namesrv(bench: Bench) -> str:
    return bench.admin("topic", "list")


@TOOLS.add(
    "a broker's port as the name server's",
    cause="the name server answered",
    fix="a broker's port",
)
def broker_as_namesrv(bench: Bench) -> str:
    bench.broker()
    return bench.admin("topic", "list", port="broker")


@TOOLS.add("a context that does not exist", cause="prod", fix="context add")
def no_context(bench: Bench) -> str:
    return bench.run("rmqha-admin", "--context", "prod", "topic", "list")


@TOOLS.add("contexts that others can read", cause="contexts.json", fix="chmod 600")
def open_contexts(bench: Bench) -> str:
    add = ("context", "add", "prod", "-n", "127.0.0.1:9876")
    bench.run("rmqha-admin", "--context-file", "contexts.json", *add)
    os.chmod(bench.path("contexts.json"), 0o644)
    named = ("--context-file", "contexts.json", "--context", "prod")
    return bench.run("rmqha-admin", *named, "topic", "list")


@TOOLS.add("a context without name servers", cause="name servers", fix="-n")
def empty_context(bench: Bench) -> str:
    return bench.run(*["rmqha-admin", "--context-file", "contexts.json", "context", "add", "prod"])


@TOOLS.add(
    "init where files are already", cause="broker-master.properties", fix="another directory"
)
def init_again(bench: Bench) -> str:
    bench.run("rmqha-admin", "init", "conf", "--pair")
    return bench.run("rmqha-admin", "init", "conf", "--pair")


@TOOLS.add("init of a pair on one machine's address", cause="2 addresses, not 1", fix="--hosts A,B")
def init_one(bench: Bench) -> str:
    return bench.run("rmqha-admin", "init", "conf", "--pair", "--hosts", "10.0.0.1")


@TOOLS.add("init without a kind", cause="--pair", fix="--dledger")
def init_nothing(bench: Bench) -> str:
    return bench.run("rmqha-admin", "init", "conf")


@TOOLS.add(
    "promote while the master lives",
    cause="answers",
    fix="Stop the old master's service",
)
def promote_beside(bench: Bench) -> str:
    whole(bench)
    return bench.run("rmqha-admin", "promote", "--config", "b.properties", "--yes")


@TOOLS.add(
    "promote with the master's file",
    cause="is the master already",
    fix="the slave's file",
)
def promote_master(bench: Bench) -> str:
    whole(bench)
    return bench.run("rmqha-admin", "promote", "--config", "a.properties", "--yes")


@TOOLS.add(
    "promote whose restart fails",
    cause="/bin/false",
    fix="again",
)
def promote_no_restart(bench: Bench) -> str:
    first, _ = whole(bench)
    first.end(signal.SIGKILL)
    return bench.run(
        *("rmqha-admin", "promote", "--config", "b.properties", "--yes"),
        *("--restart", "/bin/false", "--wait", "3"),
    )


@TOOLS.add(
    "demote before anybody was promoted",
    cause="send clients to 127.0.0.1:10911 itself",
    fix="promote its slave first",
)
def demote_first(bench: Bench) -> str:
    whole(bench)
    return bench.run("rmqha-admin", "demote", "--config", "a.properties", "--yes")


@TOOLS.add(
    "handover of a master without a slave",
    cause="has no slave",
    fix="start one first",
)
def handover_of_a_pair(bench: Bench) -> str:
    bench.broker()
    return bench.admin("handover", "broker-a", "--yes")


@TOOLS.add(
    "a script that deletes without --yes",
    cause="no terminal is there to answer",
    fix="--yes",
)
def unasked(bench: Bench) -> str:
    return bench.admin("topic", "delete", "T")


@TOOLS.add(
    "a topic that does not exist",
    cause="no route for the topic nope",
    fix="topic create",
)
def no_topic(bench: Bench) -> str:
    bench.broker("autoCreateTopicEnable=false\n")
    return bench.admin("produce", "nope", "hello")


@TOOLS.add(
    "a group that does not exist",
    cause="nope",
    fix="group list",
)
def no_group(bench: Bench) -> str:
    bench.broker()
    return bench.admin("lag", "nope")


@TOOLS.add(
    "a text that is no message id",
    cause="only an offsetMsgId",
    fix="--topic",
)
def no_id(bench: Bench) -> str:
    return bench.admin("message", "show", "nonsense")


@TOOLS.add(
    "a key that may not change while the broker runs",
    cause="listenPort",
    fix="restart",
)
def fixed_key(bench: Bench) -> str:
    bench.broker()
    return bench.admin("broker", "config", "set", "broker-a", "listenPort=10999", "--yes")


@TOOLS.add(
    "a command that does not exist", cause="No such command 'topics'", fix="Did you mean topic"
)
def no_command(bench: Bench) -> str:
    return bench.run("rmqha-admin", "topics")


@TOOLS.add("a text that is no time", cause="yesterday", fix="10m")
def no_time(bench: Bench) -> str:
    return bench.admin("reset-offset", "T", "-g", "g", "--to", "yesterday", "--yes")


@TOOLS.add("init of two things at once", cause="do not go together", fix="give one of", then="C")
def init_both(bench: Bench) -> str:
    return bench.run("rmqha-admin", "init", "conf", "--pair", "--dledger")


@TOOLS.add(
    "init of a pair on one machine",
    cause="10.0.0.1 comes twice",
    fix="name different machines",
    then="C",
)
def init_same(bench: Bench) -> str:
    return bench.run("rmqha-admin", "init", "conf", "--pair", "--hosts", "10.0.0.1,10.0.0.1")


def with_messages(bench: Bench) -> None:
    """A broker with a topic of two queues that hold four messages, and no group."""
    bench.broker(MADE_BY_HAND)
    two_queues(bench)


def two_queues(bench: Bench) -> None:
    bench.admin("topic", "create", "T", "--queues", "2")
    bench.admin("produce", "T", "hello", "--count", "4")


@TOOLS.add(
    "a topic with messages gets fewer queues",
    cause="queue 1 of T on broker-a holds 2 messages",
    fix="--drop-unread",
    then="C",
)
def fewer_queues(bench: Bench) -> str:
    with_messages(bench)
    return bench.admin("topic", "update", "T", "--queues", "1", "--yes")


@TOOLS.add("the offsets of a misspelt group are reset", cause="biling", fix="--new", then="C")
def misspelt_group(bench: Bench) -> str:
    with_messages(bench)
    return bench.admin("reset-offset", "T", "-g", "biling", "--to", "earliest", "--yes")


@TOOLS.add(
    "messages are kept for 1 hour, not 72",
    cause="fileReservedTime=1 deletes the messages of",
    fix="--drop-old",
    then="C",
    held="tests/unit/ops/admin/test_losses.py::test_a_shorter_retention_says_what_will_be_deleted",
)
def shorter_retention(bench: Bench) -> str:
    small = f"{MADE_BY_HAND}maxMessageSize=128\n"  # a log is dated once it holds two of the largest
    bench.broker_file(small)
    earlier = bench.start("rmqha-broker", "-c", "b.properties", environ=shifted(bench, hours=-5))
    earlier.until("serving:")
    two_queues(bench)
    earlier.end()
    bench.broker(small)
    return bench.admin("broker", "config", "set", "broker-a", "fileReservedTime=1", "--yes")


@TOOLS.add(
    "consume in a group that does not exist, and that no broker creates",
    cause="does not have the group workers",
    fix="rmqha-admin group create workers",
    then="C",
)
def missing_group(bench: Bench) -> str:
    with_messages(bench)
    return bench.admin("consume", "T", "-g", "workers", "--until-end")


@TOOLS.add(
    "dead letters of a group without any",
    cause="no dead letters of failing",
    fix="group list",
    then="C",
)
def no_dead_letters(bench: Bench) -> str:
    with_messages(bench)
    bench.admin("group", "create", "failing")
    return bench.admin("dlq", "show", "failing")
