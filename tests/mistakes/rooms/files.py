"""Properties files, paths, ports and the machine: what a start, or `--check`, has to say."""

from __future__ import annotations

import os
import shutil

from tests.mistakes.bench import Bench
from tests.mistakes.mistake import Room

FILES = Room("Files, ports, the machine")
CONTROLLED = "enableControllerMode=true\ncontrollerAddr=127.0.0.1:9878\n"


def check(bench: Bench, settings: str = "", *more: str) -> str:
    bench.broker_file(settings)
    return bench.run("rmqha-broker", "-c", "b.properties", "--check", *more)


def try_to_start(bench: Bench, settings: str = "") -> str:
    """Of a broker that is not to start; one that does is ended."""
    bench.broker_file(settings)
    running = bench.start("rmqha-broker", "-c", "b.properties")
    running.until("serving:")
    return running.end()


@FILES.add(
    "the properties file does not exist",
    cause="nope.properties: No such file",
    fix="--config (-c) names",
    then="A",
)
def no_file(bench: Bench) -> str:
    return bench.run("rmqha-broker", "-c", "nope.properties")


@FILES.add(
    "the broker's user may not read the file",
    cause="b.properties: Permission denied",
    fix="that this user may read",
    then="A",
)
def unreadable_file(bench: Bench) -> str:
    bench.broker_file()
    os.chmod(bench.path("b.properties"), 0)
    return bench.run(
        *("setpriv", "--bounding-set", "-dac_override,-dac_read_search"),
        *("rmqha-broker", "-c", "b.properties"),
    )


@FILES.add(
    "the store's path cannot be made",
    cause="/dev/null/store",
    fix="storePathRootDir",
    then="B",
)
def impossible_store(bench: Bench) -> str:
    return try_to_start(bench, "storePathRootDir=/dev/null/store\n")


@FILES.add(
    "the store's path cannot be made; --check --live before the start",
    cause="/dev/null/store",
    fix="storePathRootDir",
    then="C",
)
def impossible_store_checked(bench: Bench) -> str:
    return check(bench, "storePathRootDir=/dev/null/store\n", "--live")


@FILES.add(
    "a port is taken",
    cause="(metricsPort): it is in use by another process",
    fix="ss -ltnp",
    then="A",
)
def port_taken(bench: Bench) -> str:
    bench.broker(f"metricsPort={bench.port['metrics']}\n", "other.properties", "slave")
    return try_to_start(
        bench,
        f"metricsPort={bench.port['metrics']}\nembeddedNamesrvPort={bench.port['second']}\n",
    )


@FILES.add(
    "a port is taken; --check --live before the start",
    cause="port-taken",
    fix="stop what listens there",
    then="C",
)
def port_taken_checked(bench: Bench) -> str:
    bench.broker()
    return check(bench, "brokerName=broker-b\n", "--live")


@FILES.add(
    "the address belongs to another machine",
    cause="cannot listen on port",
    fix="correct bindAddress",
    then="A",
)
def foreign_address(bench: Bench) -> str:
    return try_to_start(bench, "bindAddress=192.0.2.77\n")


@FILES.add(
    "a misspelt key",
    cause="unknown key flushDiscType",
    fix="did you mean flushDiskType",
    then="A",
)
def misspelt_key(bench: Bench) -> str:
    return check(bench, "flushDiscType=SYNC_FLUSH\n")


@FILES.add(
    "a unit behind a number", cause="fileReservedTime=2d", fix="must be a whole number", then="A"
)
def unit(bench: Bench) -> str:
    return check(bench, "fileReservedTime=2d\n")


@FILES.add("a role that does not exist", cause="brokerRole=MASTER", fix="SYNC_MASTER", then="A")
def wrong_role(bench: Bench) -> str:
    return check(bench, "brokerRole=MASTER\n")


@FILES.add(
    "a flush type that does not exist", cause="flushDiskType=SYNC", fix="SYNC_FLUSH", then="A"
)
def wrong_flush(bench: Bench) -> str:
    return check(bench, "flushDiskType=SYNC\n")


@FILES.add("yes instead of true", cause="aclEnable=yes", fix="true or false", then="A")
def yes(bench: Bench) -> str:
    return check(bench, "aclEnable=yes\n")


@FILES.add("an hour that does not exist", cause="deleteWhen=25", fix="0 to 23", then="A")
def hour(bench: Bench) -> str:
    return check(bench, "deleteWhen=25\n")


@FILES.add("a port number that is too large", cause="listenPort=99999", fix="65535", then="A")
def high_port(bench: Bench) -> str:
    return check(bench, "listenPort=99999\n")


@FILES.add("a slave with id 0", cause="brokerId", fix="SLAVE", then="A")
def slave_zero(bench: Bench) -> str:
    return check(bench, "brokerRole=SLAVE\nbrokerId=0\nnamesrvAddr=127.0.0.1:9876\n")


@FILES.add(
    "a slave that knows no name server",
    cause="a SLAVE must find its master",
    fix="set namesrvAddr",
    then="A",
)
def slave_alone(bench: Bench) -> str:
    return check(bench, "brokerRole=SLAVE\nbrokerId=1\n")


@FILES.add("a master with id 1", cause="becomes 0", fix="SYNC_MASTER is a master", then="A")
def master_one(bench: Bench) -> str:
    return check(bench, "brokerRole=SYNC_MASTER\nbrokerId=1\n")


@FILES.add(
    "a host name without an address as brokerIP1",
    cause="brokerIP1=broker-a.invalid",
    fix="write the address",
    then="C",
)
def name_as_ip(bench: Bench) -> str:
    return check(bench, "brokerIP1=broker-a.invalid\n")


@FILES.add(
    "a host name as bindAddress",
    cause="bindAddress=broker-a.invalid",
    fix="write the address",
    then="C",
)
def name_as_bind(bench: Bench) -> str:
    return check(bench, "bindAddress=broker-a.invalid\n")


@FILES.add(
    "name servers separated by a comma",
    cause="namesrvAddr=127.0.0.1:9876,127.0.0.2:9876",
    fix="semicolon",
    then="C",
)
def commas(bench: Bench) -> str:
    return check(bench, "namesrvAddr=127.0.0.1:9876,127.0.0.2:9876\n")


@FILES.add(
    "a name server as a URL", cause="namesrvAddr=http://127.0.0.1:9876", fix="host:port", then="C"
)
def url(bench: Bench) -> str:
    return check(bench, "namesrvAddr=http://127.0.0.1:9876\n")


@FILES.add("Windows line ends and a byte order mark", cause="# port", fix="exit code 0", then="A/B")
def windows(bench: Bench) -> str:
    bench.broker_file()
    path = bench.directory / "b.properties"
    path.write_bytes(
        b"\xef\xbb\xbf" + b"# of Windows\r\n" + path.read_bytes().replace(b"\n", b"\r\n")
    )
    return bench.run("rmqha-broker", "-c", "b.properties", "--check")


@FILES.add(
    "`--check | head`",
    cause="exit code 0",
    fix="exit code 0",
    then="C",
)
def cut_off(bench: Bench) -> str:
    bench.broker_file()
    text = bench.run(
        "bash", "-o", "pipefail", "-c", "rmqha-broker -c b.properties --check | head -n1"
    )
    return text if "Traceback" not in text else text.replace("exit code 0", "")


@FILES.add(
    "a low limit of open files",
    cause="only 64 open files",
    fix="LimitNOFILE",
    then="A",
)
def few_files(bench: Bench) -> str:
    bench.broker_file()
    running = bench.start(
        "rmqha-broker",
        "-c",
        "b.properties",
        files=64,
    )
    running.until("serving:")
    return running.end()


@FILES.add(
    "a limit of open files that is too low to start",
    cause="open files",
    fix="LimitNOFILE",
)
def too_few_files(bench: Bench) -> str:
    bench.broker_file()
    running = bench.start(
        "rmqha-broker",
        "-c",
        "b.properties",
        files=16,
    )
    running.until("serving:")
    return running.end()


@FILES.add(
    "controller mode and DLedger in one file",
    cause="enableControllerMode",
    fix="enableDLegerCommitLog",
)
def two_modes(bench: Bench) -> str:
    return check(
        bench,
        f"{CONTROLLED}enableDLegerCommitLog=true\ndLegerGroup=g\ndLegerSelfId=n0\ndLegerPeers=n0-127.0.0.1:40911\n",
    )


@FILES.add(
    "controller mode without a controller's address",
    cause="enableControllerMode",
    fix="controllerAddr",
)
def no_controller(bench: Bench) -> str:
    return check(bench, "enableControllerMode=true\n")


@FILES.add(
    "a value in quotes",
    cause='brokerName="broker-a"',
    fix="remove them",
    then="C",
)
def quotes(bench: Bench) -> str:
    return check(bench, 'brokerName="broker-a"\n')


@FILES.add(
    "a comment behind a value",
    cause="the comment is part of the value",
    fix="give it a line of its own",
    then="C",
)
def comment(bench: Bench) -> str:
    return check(bench, "brokerName=broker-a # the first\n")


@FILES.add(
    "`~` for the home directory", cause="nobody replaces ~", fix="write the whole path", then="C"
)
def tilde(bench: Bench) -> str:
    return check(bench, "storePathRootDir=~/store\n")


@FILES.add(
    "a shell variable",
    cause="nobody replaces variables here",
    fix="write the value itself",
    then="C",
)
def variable(bench: Bench) -> str:
    return check(bench, "storePathRootDir=$HOME/store\n")


@FILES.add(
    "0.0.0.0 as the address for clients",
    cause="brokerIP1=0.0.0.0",
    fix="write the address of this machine",
    then="C",
)
def told_all(bench: Bench) -> str:
    return check(bench, "brokerIP1=0.0.0.0\n")


@FILES.add(
    "messages are kept for 0 hours",
    cause="fileReservedTime=0: at the hour of deleteWhen",
    fix="such as 72",
    then="C",
)
def no_hours(bench: Bench) -> str:
    return check(bench, "fileReservedTime=0\n")


@FILES.add(
    "the status port is open to all, without a token",
    cause="whoever reaches port 5557",
    fix="name the one that Prometheus asks",
    then="B",
)
def open_metrics(bench: Bench) -> str:
    return check(bench, f"metricsPort={bench.port['metrics']}\nmetricsAddress=0.0.0.0\n")


@FILES.add("a DLedger member that is not in dLegerPeers", cause="dLegerSelfId", fix="dLegerPeers")
def not_a_member(bench: Bench) -> str:
    peers = "n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913"
    return check(
        bench, f"enableDLegerCommitLog=true\ndLegerGroup=g\ndLegerPeers={peers}\ndLegerSelfId=n7\n"
    )


@FILES.add(
    "a name server's file given to a broker",
    cause="a key of rmqha-namesrv",
    fix="is this the right file?",
)
def file_of_another(bench: Bench) -> str:
    bench.write("n.properties", "listenPort=9876\nkvConfigPath=kv.json\n")
    return bench.run("rmqha-broker", "-c", "n.properties", "--check")


@FILES.add(
    "a broker's file given to a name server",
    cause="a key of rmqha-broker",
    fix="is this the right file?",
)
def file_of_a_broker(bench: Bench) -> str:
    bench.broker_file("brokerRole=SYNC_MASTER\n")
    return bench.run("rmqha-namesrv", "-c", "b.properties", "--check")


@FILES.add("the file without `-c`", cause="b.properties", fix="--config")
def no_option(bench: Bench) -> str:
    bench.broker_file()
    return bench.run("rmqha-broker", "b.properties", "--check")


@FILES.add(
    "a Python that is too old",
    cause="requires a different Python",
    fix=">=3.11",
    held="tests/packaging/test_install.py::test_an_older_python_is_told_so",
)
def old_python(bench: Bench) -> str:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    shutil.copytree(
        os.path.join(root, "rmq_ha"), bench.path("rmq_ha"), ignore=shutil.ignore_patterns("*")
    )
    return bench.run(
        *(
            "python",
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
        ),
        *("--python-version", "3.9", "--only-binary", ":all:", "--dest", bench.path("d"), root),
    )
