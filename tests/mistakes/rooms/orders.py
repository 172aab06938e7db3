"""Commands of an administrator that name the wrong thing, or come in the wrong order."""

from __future__ import annotations

import signal

from tests.mistakes.bench import Bench
from tests.mistakes.rooms.between import BETWEEN, master, namesrv, slave, whole
from tests.mistakes.rooms.stores import STORES
from tests.mistakes.rooms.tools import TOOLS, with_messages

COPIES = "tests/unit/ops/admin/test_message_copy.py"
NOT_SENT = f"{COPIES}::test_a_copy_that_nobody_means_is_not_sent"
OF_INIT = "tests/unit/ops/admin/test_init.py::test_what_init_cannot_write_is_said"
STORE = "tests/unit/server/store/test_default_store.py"
CALLS = "tests/unit/client/test_options.py"


def typed(bench: Bench, *words: str) -> str:
    """Typed to a broker whose topic T has four messages."""
    with_messages(bench)
    return bench.admin(*words)


def program(bench: Bench, text: str) -> str:
    """Run a program of an application."""
    bench.write("program.py", text)
    return bench.run("python", "program.py")


@TOOLS.add("a body of two words", cause="the body is one word", fix='"hello world"', then="B")
def two_words(bench: Bench) -> str:
    return bench.admin("produce", "T", "hello", "world")


@TOOLS.add(
    "a backup where nothing can be written",
    cause="/proc/bak: No such file or directory",
    fix="name a place where this user may read and write",
    then="B",
    held=OF_INIT,
)
def backup_nowhere(bench: Bench) -> str:
    with_messages(bench)
    return bench.run("rmqha-admin", "backup", "/proc/bak", "--config", "b.properties")


@TOOLS.add(
    "a backup into the store itself",
    cause="lies in the store",
    fix="name a directory elsewhere",
    then="A",
    held="tests/unit/ops/admin/test_backup_command.py::test_a_backup_does_not_lie_in_its_store",
)
def backup_inside(bench: Bench) -> str:
    with_messages(bench)
    return bench.run("rmqha-admin", "backup", "store-b/copy", "--config", "b.properties")


@TOOLS.add(
    "init of machines with ports",
    cause="give the machine without a port",
    fix="--base-port",
    then="B",
)
def init_ports(bench: Bench) -> str:
    hosts = "10.0.0.1:10911,10.0.0.2:10911"
    return bench.run("rmqha-admin", "init", "conf", "--pair", "--hosts", hosts)


@TOOLS.add(
    "a message of a queue that does not exist",
    cause="there is no queue 9",
    fix="has 2 queues to read",
    then="B",
    held="tests/unit/ops/admin/test_said_plainly.py::test_a_place_that_is_none",
)
def no_queue(bench: Bench) -> str:
    return typed(bench, "message", "show", "--at", "broker-a:9:0", "-t", "T")


@TOOLS.add(
    "two topics in one command",
    cause="no broker has T,U",
    fix="one topic at a time",
    then="B",
    held="tests/unit/ops/admin/test_said_plainly.py::test_two_topics_in_one_word",
)
def two_topics(bench: Bench) -> str:
    return typed(bench, "topic", "delete", "T,U", "--yes")


@TOOLS.add(
    "demote with a name server's file",
    cause="kvConfigPath is a key of rmqha-namesrv",
    fix="name the properties file of the broker",
    then="B",
)
def demote_namesrv(bench: Bench) -> str:
    bench.write("n.properties", f"listenPort={bench.port['namesrv']}\nkvConfigPath=./kv.json\n")
    return bench.run("rmqha-admin", "demote", "--config", "n.properties", "--yes")


@TOOLS.add(
    "a send to a topic that may only be read",
    cause="its queues may only be read",
    fix="rmqha-admin topic update T --perm RW",
    then="B",
    held="tests/unit/client/test_publish_topics.py::test_a_topic_that_nobody_takes_has_no_route",
)
def only_read(bench: Bench) -> str:
    with_messages(bench)
    bench.admin("topic", "update", "T", "--perm", "R", "--yes")
    return bench.admin("produce", "T", "hello", "--wait", "0")


@TOOLS.add(
    "a topic's name for a group",
    cause="the group T has no offsets",
    fix="group list",
    then="A",
    held="tests/unit/ops/admin/test_typed_trouble.py::test_a_clone_is_of_one_topic_or_all_but_retries",
)
def topic_as_group(bench: Bench) -> str:
    return typed(bench, "lag", "T")


@TOOLS.add(
    "an account where access control is off",
    cause="access control is off",
    fix="set aclEnable=true",
    then="A",
)
def acl_off(bench: Bench) -> str:
    return typed(bench, "acl", "set", "shopuser", "--new-secret", "12345678", "--yes")


@TOOLS.add("a number with a unit, while the broker runs", cause="fileReservedTime=72h",
           fix="must be a whole number", then="A")  # fmt: skip
def unit_set(bench: Bench) -> str:
    return typed(bench, "broker", "config", "set", "broker-a", "fileReservedTime=72h", "--yes")


@TOOLS.add(
    "init of machines with a semicolon between them",
    cause="is no address and no name",
    fix="between two addresses is a comma",
    held=OF_INIT,
)
def init_semicolon(bench: Bench) -> str:
    return bench.run("rmqha-admin", "init", "conf", "--pair", "--hosts", "10.0.0.1;10.0.0.2")


@TOOLS.add(
    "init of a name with a blank",
    cause="--name 'broker a'",
    fix="use letters, digits",
    held=OF_INIT,
)
def init_name(bench: Bench) -> str:
    return bench.run("rmqha-admin", "init", "conf", "--pair", "--name", "broker a")


@TOOLS.add(
    "init where nothing can be written",
    cause="/proc/conf: No such file or directory",
    fix="name a place where this user may read and write",
    held=OF_INIT,
)
def init_nowhere(bench: Bench) -> str:
    return bench.run("rmqha-admin", "init", "/proc/conf", "--pair")


@TOOLS.add(
    "a copy to a misspelt topic", cause="there is no topic Othr", fix="topic list", held=NOT_SENT
)
def copy_nowhere(bench: Bench) -> str:
    at = ("--at", "broker-a:0:0", "-t", "T")
    return typed(bench, "message", "copy", *at, "--to", "Othr", "--yes")


@TOOLS.add(
    "a property that the message does not have is dropped",
    cause="has no property colour",
    fix="it has: ",
    held=NOT_SENT,
)
def drop_nothing(bench: Bench) -> str:
    at = ("--at", "broker-a:0:0", "-t", "T")
    return typed(bench, "message", "resend", *at, "--drop", "colour", "--yes")


@TOOLS.add(
    "a delay level that does not exist",
    cause="DELAY is a level from 0 to 18",
    fix="18 means 2h",
    held=NOT_SENT,
)
def level_99(bench: Bench) -> str:
    at = ("--at", "broker-a:0:0", "-t", "T")
    return bench.admin("message", "resend", *at, "-p", "DELAY=99", "--yes")


@TOOLS.add(
    "an editor that does not exist",
    cause="nonsuch",
    fix="name another editor in EDITOR",
    held=f"{COPIES}::test_an_editor_that_does_not_exist",
)
def no_editor(bench: Bench) -> str:
    with_messages(bench)
    at = ("--at", "broker-a:0:0", "-t", "T")
    given = {"EDITOR": "nonsuch", "VISUAL": ""}
    return bench.admin("message", "resend", *at, "--edit", "--yes", environ=given)


@TOOLS.add(
    "a topic of RocketMQ is deleted",
    cause="is conflict with system topic",
    fix="RocketMQ itself uses this topic",
    held="tests/unit/ops/admin/test_session.py::test_what_to_try_next_depends_on_who_asked",
)
def system_topic(bench: Bench) -> str:
    return typed(bench, "topic", "delete", "SCHEDULE_TOPIC_XXXX", "--yes")


@TOOLS.add(
    "a misspelt producer group",
    cause="the producer group makr has no open half messages",
    fix="groups that have some",
    held="tests/unit/ops/admin/test_waiting.py::test_open_half_messages_are_shown_by_group_with_their_age",
)
def no_half(bench: Bench) -> str:
    bench.broker("transactionCheckInterval=1000\n")
    return bench.until(lambda: bench.admin("transaction", "list", "-g", "makr"), "makr")


@TOOLS.add(
    "a code that doctor does not have",
    cause="no rule two-mastrs",
    fix="did you mean two-masters",
)
def no_code(bench: Bench) -> str:
    return bench.admin("doctor", "--only", "two-mastrs")


@TOOLS.add("a bundle over an older one", cause="is there already", fix="name another one")
def bundle_again(bench: Bench) -> str:
    bench.write("today.tar.gz", "")
    return bench.admin("bundle", "today.tar.gz")


@TOOLS.add(
    "import of a file that no export wrote",
    cause="has no list `brokers`",
    fix="give the file that `rmqha-admin cluster export FILE` wrote",
    held="tests/unit/ops/admin/test_cluster_import.py::test_files_are_typed",
)
def import_wrong(bench: Bench) -> str:
    bench.write("all.json", "{}")
    return typed(bench, "cluster", "import", "all.json", "--yes")


@TOOLS.add(
    "hand-over to a broker that there is not",
    cause="broker-a has no broker 7",
    fix="it has 0 (127.0.0.1:10911)",
)
def handover_to_7(bench: Bench) -> str:
    return typed(bench, "handover", "broker-a", "--to", "7", "--yes")


@TOOLS.add(
    "hand-over of a master that is frozen",
    cause="no response from 127.0.0.1:10911",
    fix="docs/failover.md, step 2",
    held="tests/unit/ops/admin/test_handover_pair.py::test_a_frozen_master_may_hand_over_later",
)
def frozen_handover(bench: Bench) -> str:
    first, _ = whole(bench)
    first.tell(signal.SIGSTOP)
    return bench.admin("handover", "broker-a", "--yes")


@BETWEEN.add(
    "a slave in another cluster",
    cause="cluster-differs",
    fix="registers with another `brokerClusterName`",
    then="A",
    held="tests/unit/ops/admin/doctor/test_identity.py::test_a_slave_of_another_cluster",
)
def other_cluster(bench: Bench) -> str:
    namesrv(bench)
    first = master(bench)
    slave(bench, "brokerClusterName=Other\n")
    first.until("caught up")
    return bench.until(lambda: bench.admin("doctor", "--look-again", "0"), "cluster-differs", 20)


@STORES.add(
    "two brokers, one storePathCommitLog",
    cause="another broker has this folder open",
    fix="stop it first",
    held=f"{STORE}::test_two_stores_never_share_a_log",
)
def one_log(bench: Bench) -> str:
    bench.broker()
    own = f"embeddedNamesrvPort={bench.port['second']}\nstorePathCommitLog=store-b/commitlog\n"
    bench.broker_file(own, "c.properties", "slave")
    running = bench.start("rmqha-broker", "-c", "c.properties")
    running.until("serving:")
    return running.end()


@STORES.add(
    "the folder of a log as storePathRootDir",
    cause="is a file of a commit log",
    fix="name the folder above",
    held=f"{STORE}::test_no_store_is_made_in_the_folder_of_a_log",
)
def store_in_log(bench: Bench) -> str:
    with_messages(bench)
    own = f"embeddedNamesrvPort={bench.port['second']}\nstorePathRootDir=store-b/commitlog\n"
    bench.broker_file(own, "c.properties", "slave")
    running = bench.start("rmqha-broker", "-c", "c.properties")
    running.until("serving:")
    return running.end()


@STORES.add(
    "a store that belongs to another user",
    cause="store-b/lock: Permission denied",
    fix="give the user of this process the right to it",
    held="tests/unit/ops/app/test_service.py::test_a_file_error_names_the_file",
)
def store_of_root(bench: Bench) -> str:
    bench.broker().end()
    (bench.directory / "store-b" / "lock").chmod(0o400)
    running = bench.start(
        *("setpriv", "--bounding-set", "-dac_override,-dac_read_search"),
        *("rmqha-broker", "-c", "b.properties"),
    )
    running.until("serving:")
    return running.end()


@TOOLS.add(
    "a program gives name servers in the place of the reactor",
    cause="takes Twisted's reactor first, not str",
    fix="With asyncio take rmq_ha.client.aio.connect",
    held=f"{CALLS}::test_what_connect_is_given_by_mistake_is_named",
)
def no_reactor(bench: Bench) -> str:
    return program(bench, "from rmq_ha.client import connect\nconnect('127.0.0.1:9876')\n")


@TOOLS.add(
    "a program gives a port in the place of name servers",
    cause="not with int",
    fix="host:port",
    held=f"{CALLS}::test_what_connect_is_given_by_mistake_is_named",
)
def port_alone(bench: Bench) -> str:
    text = "async def run():\n    connect(9876)\nasyncio.run(run())\n"
    return program(bench, f"import asyncio\nfrom rmq_ha.client.aio import connect\n{text}")


@TOOLS.add(
    "one client of asyncio in two loops",
    cause="belongs to another event loop",
    fix="call connect() once in each asyncio.run()",
    held=f"{CALLS}::test_a_client_is_not_used_in_a_second_loop",
)
def two_loops(bench: Bench) -> str:
    text = (
        "import asyncio\nfrom rmq_ha.client.aio import connect\n"
        "async def make():\n    return connect('127.0.0.1:9876')\n"
        "client = asyncio.run(make())\nasync def use():\n    await client.producer()\n"
        "asyncio.run(use())\n"
    )
    return program(bench, text)


@TOOLS.add(
    "a simple consumer at a broker without pops",
    cause="request type 200050 not supported",
    fix="popEnable=true",
    held="tests/unit/client/test_simple_consumer.py::test_a_broker_without_pops_says_how_to_allow_them",
)
def no_pops(bench: Bench) -> str:
    with_messages(bench)
    bench.admin("group", "create", "payers")
    text = (
        "import asyncio\nfrom datetime import timedelta\n"
        "from rmq_ha.client.aio import connect\nasync def run():\n"
        f"    async with connect('{bench.at('namesrv')}') as client:\n"
        "        consumer = client.simple_consumer('payers')\n"
        "        consumer.subscribe('T')\n        async with consumer:\n"
        "            await consumer.receive(5, timedelta(seconds=10))\nasyncio.run(run())\n"
    )
    return program(bench, text)


@TOOLS.add(
    "a comparison of a store with itself",
    cause="are the same directory: no pair",
    fix="give it once",
    held="tests/unit/lake/spark/test_commands_of_jobs.py::test_one_store_is_compared_with_itself_and_two_with_each_other",
)
def same_store(bench: Bench) -> str:
    bench.broker()
    return bench.run("rmqha-spark", "verify-replica", "store-b", "store-b")
