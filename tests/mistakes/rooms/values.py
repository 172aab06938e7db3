"""Values of properties files that a person means otherwise: what `--check` has to say."""

from __future__ import annotations

from tests.mistakes.bench import Bench
from tests.mistakes.rooms.files import FILES, check

DOUBTS = "tests/unit/base/config/test_doubtful.py"
BROKEN = f"{DOUBTS}::test_a_value_that_nobody_means_fails_the_check_and_starts"
NOTED = f"{DOUBTS}::test_what_a_client_misses"


@FILES.add(
    "the broker's own port as the name server's",
    cause="is this broker's own, for clients (listenPort)",
    fix="name the port of a name server",
    then="B",
)
def own_port(bench: Bench) -> str:
    return check(bench, f"namesrvAddr={bench.at('broker')}\n")


@FILES.add(
    "a key of RocketMQ 5 that is spelt wrongly",
    cause="unknown key timerWheelEnabled",
    fix="did you mean timerWheelEnable?",
    then="B",
)
def key_of_5(bench: Bench) -> str:
    return check(bench, "timerWheelEnabled=true\n")


@FILES.add(
    "listenPort as haListenPort",
    cause="haListenPort=10911 becomes 10912",
    fix="listenPort + 1",
    then="A",
)
def ha_on_own_port(bench: Bench) -> str:
    return check(bench, f"haListenPort={bench.port['broker']}\n")


@FILES.add(
    "the status port on the clients' fast port",
    cause="this port is for clients' fast port",
    fix="set another",
    then="A",
)
def status_on_fast_port(bench: Bench) -> str:
    return check(bench, f"metricsPort={bench.port['broker'] - 2}\n")


@FILES.add(
    "mapedFileSizeCommitLog, as older documents spell it",
    cause="unknown key mapedFileSizeCommitLog",
    fix="did you mean mappedFileSizeCommitLog",
    then="A",
)
def maped(bench: Bench) -> str:
    return check(bench, "mapedFileSizeCommitLog=1048576\n")


@FILES.add(
    "a delay level of an unknown unit", cause="'10x' is not a number", fix="s, m, h or d", then="A"
)
def delay_unit(bench: Bench) -> str:
    return check(bench, "messageDelayLevel=1s 5s 10x\n")


@FILES.add(
    "a name server without its port",
    cause="is not host:port",
    fix="such as 10.0.0.5:9876",
    then="A",
)
def no_port(bench: Bench) -> str:
    return check(bench, "namesrvAddr=127.0.0.1\n")


@FILES.add("a short pageToken", cause="pageToken=***", fix="at least 16 characters", then="A")
def short_token(bench: Bench) -> str:
    return check(bench, f"metricsPort={bench.port['metrics']}\npageToken=short\n")


@FILES.add(
    "a directory as the properties file",
    cause="Is a directory",
    fix="names a properties file",
    then="A",
)
def a_folder(bench: Bench) -> str:
    return bench.run("rmqha-broker", "-c", "/tmp", "--check")


@FILES.add(
    "a log format that does not exist",
    cause="logFormat=jsn",
    fix="must be one of text, json",
    then="A",
)
def log_format(bench: Bench) -> str:
    return check(bench, "", "--log-format", "jsn")


@FILES.add("--set with two words", cause="--set a", fix="must be key=value", then="A")
def two_word_set(bench: Bench) -> str:
    return check(bench, "", "--set", "a", "b")


@FILES.add(
    "a blank in brokerName", cause="brokerName=broker a", fix="use letters, digits", held=BROKEN
)
def blank_in_name(bench: Bench) -> str:
    return check(bench, "brokerName=broker a\n")


@FILES.add(
    "export before a key, as in a shell",
    cause="a key ends at the first space",
    fix="write brokerRole=ASYNC_MASTER",
    held=BROKEN,
)
def exported(bench: Bench) -> str:
    return check(bench, "export brokerRole=ASYNC_MASTER\n")


@FILES.add(
    "a port for gRPC without pops",
    cause="serves producers alone",
    fix="popEnable=true",
    held=NOTED,
)
def grpc_alone(bench: Bench) -> str:
    return check(bench, f"grpcServerPort={bench.port['other']}\n")


@FILES.add("a ratio in place of percent", cause="diskMaxUsedSpaceRatio=0.75", fix="a whole number")
def ratio(bench: Bench) -> str:
    return check(bench, "diskMaxUsedSpaceRatio=0.75\n")
