"""Values that nobody means: `--check` fails; what cannot work stops the start, too."""

from dataclasses import replace
from pathlib import Path

import pytest

from rmq_ha.base.config.load import load_broker
from rmq_ha.base.config.load_controller import load_controller
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.ops.app import controller_tap, namesrv_tap, tap
from rmq_ha.ops.app.options import BrokerOptions, ControllerOptions, NamesrvOptions

HERE = Surroundings(
    environ={}, home="/home/u", host_name="box", address="10.1.2.3", directory="/work"
)
ROOT = "storePathRootDir=/tmp/store\n"
NAMED = "namesrvAddr=10.0.0.5:9876\n"


def told(text: str) -> list[str]:
    return [notice.text for notice in load_broker(text, HERE, name="b").notices]


def checked(kind: str, text: str, folder: Path) -> object:
    """What `--check` leaves with."""
    options, program = {
        "broker": (BrokerOptions(), tap),
        "namesrv": (NamesrvOptions(), namesrv_tap),
        "controller": (ControllerOptions(), controller_tap),
    }[kind]
    path = folder / "server.properties"
    path.write_text(text)
    path.chmod(0o600)
    options.parseOptions(["--check", "--config", str(path)])
    with pytest.raises(SystemExit) as caught:
        program.makeService(options)  # type: ignore[attr-defined]
    return caught.value.code


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('brokerName="broker-a"', "the quotes are part of the value"),
        ("brokerClusterName='c'", "the quotes are part of the value"),
        ("brokerName=broker-a # the first", "the comment is part of the value"),
        ("brokerName=broker-a // the first", "the comment is part of the value"),
        ("storePathRootDir=~/store", "nobody replaces ~ by a home directory"),
        ("storePathCommitLog=$HOME/store", "nobody replaces variables"),
        ("storePathRootDir=${user.home}/store", "nobody replaces variables"),
        ("brokerName=${HOSTNAME}", "nobody replaces variables"),
        ("tls.server.keyPath=~/key.pem", "nobody replaces ~"),
        ("brokerName=broker a", "take this name apart"),
        ("brokerClusterName=a;b", "take this name apart"),
        ("export brokerRole=SLAVE", "a key ends at the first space; write brokerRole=SLAVE"),
        ("fileReservedTime=0", "every file of the log but the newest is deleted"),
        ("namesrvAddr=0.0.0.0:9876", "0.0.0.0 stands for all addresses of a listener"),
        ("bindAddress=127.0.0.1\nbrokerIP1=10.0.0.6", "listens on 127.0.0.1 alone"),
        ("bindAddress=10.0.0.6\nbrokerIP1=127.0.0.1", "listens on 10.0.0.6 alone"),
        (
            "bindAddress=0.0.0.0\nbrokerIP1=fd00::6",
            "fd00::6 is an address of IPv6, and this",
        ),
        ("bindAddress=fd00::6\nbrokerIP1=10.0.0.6", "listens on IPv6 only (bindAddress=fd00::6)"),
        ("bindAddress=0.0.0.0\nbrokerIP2=fd00::6", "leave bindAddress out, which listens on both"),
        (
            "bindAddress=10.0.0.6\nenableDLegerCommitLog=true\ndLegerSelfId=n0\ndLegerGroup=g\n"
            "dLegerPeers=n0-[fd00::6]:40911;n1-[fd00::7]:40911;n2-[fd00::8]:40911",
            "dLegerPeers: fd00::6 is an address of IPv6",
        ),
        (
            "maxMessageSize=5000000\nmappedFileSizeCommitLog=4194304",
            "fits into no file of the log",
        ),
        ("diskSpaceCleanForciblyRatio=92", "messages are refused before old files go"),
    ],
)
def test_a_value_that_nobody_means_fails_the_check_and_starts(
    line: str, words: str, tmp_path: Path
) -> None:
    text = f"{line}\n" if "storePathRootDir" in line else f"{ROOT}{line}\n"
    found = [said for said in told(text) if words in said]
    assert len(found) == 1
    (code,) = [checked("broker", text, tmp_path)]
    assert words in str(code)


@pytest.mark.parametrize(
    "line",
    [
        "brokerName=broker-a",
        "brokerName=it's",
        "brokerName=a#b",
        "storePathRootDir=/data/~me/store",
        "brokerName=cost$",
        "fileReservedTime=1",
        "pageToken=a # b $HOME ~ and 16 characters\nmetricsPort=5557",
        "bindAddress=10.0.0.6\nbrokerIP1=203.0.113.7",
        "bindAddress=0.0.0.0\nbrokerIP1=127.0.0.1",
        "metricsPort=5557\nmetricsAddress=10.0.0.6\npageToken=0123456789abcdef",
        "embeddedNamesrvPort=9900",
    ],
)
def test_what_may_be_meant_is_let_pass(line: str) -> None:
    assert told(f"{line}\n") == []


def test_a_secret_in_quotes_is_not_shown() -> None:
    (said,) = told('aclAccessKey=someaccount\naclSecretKey="a-secret-in-quotes"\n')
    assert said == "b:2: aclSecretKey=***: the quotes are part of the value: remove them"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("brokerIP1=0.0.0.0", "b:1: brokerIP1=0.0.0.0: this stands for all addresses"),
        ("brokerIP2=::", "b:1: brokerIP2=::: this stands for all addresses"),
        ("namesrvAddr=127.0.0.1:10911", "port 10911 of this machine is this broker's own"),
        ("namesrvAddr=10.0.0.5:9876;10.1.2.3:10909", "port 10909 of this machine"),
        ("namesrvAddr=box:10911", "port 10911 of this machine"),
        ("brokerIP1=10.0.0.6\nnamesrvAddr=10.0.0.6:10911", "name the port of a name server"),
        (f"{NAMED}haMasterAddress=10.1.2.3:10912\nbrokerRole=SLAVE\nbrokerId=1", "of a master"),
        (
            f"{NAMED}enableControllerMode=true\ncontrollerAddr=10.1.2.3:10911",
            "name the port of a controller",
        ),
        ('brokerRole="SLAVE"', "remove them"),
        ("listenPort=10911 # clients", "the comment is part of the value"),
        ('brokerIP1="10.0.0.6"', "the quotes are part of the value"),
        ("brokerIP1=$POD_IP", "nobody replaces variables"),
    ],
)
def test_what_cannot_work_stops_the_start(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_broker(f"{text}\n", HERE, name="b")
    assert words in str(caught.value)


def test_another_machine_may_have_a_name_server_on_the_port_of_this_broker() -> None:
    assert told("namesrvAddr=10.0.0.5:10911") == []
    assert told("bindAddress=10.1.2.3\nnamesrvAddr=127.0.0.1:10911") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("metricsPort=5557\nmetricsAddress=0.0.0.0", "it is open on all addresses"),
        ("metricsPort=5557\nmetricsAddress=", "it is open on all addresses"),
        ("metricsPort=5557\nmetricsAddress=10.0.0.6", "the page shows nothing to anybody"),
        ("metricsAddress=10.0.0.6", "metricsAddress has no effect without metricsPort"),
        ("pageToken=0123456789abcdef", "pageToken has no effect without metricsPort"),
        (f"{NAMED}embeddedNamesrvPort=9900", "this broker runs no name server"),
        (f"{NAMED}namesrvAllowedBrokers=10.0.0.7", "this broker runs no name server"),
        ("haMasterAddress=10.0.0.7:10912", "haMasterAddress has no effect: this broker is a"),
        (f"{NAMED}controllerAddr=a-controller", "no effect without enableControllerMode=true"),
    ],
)
def test_what_works_otherwise_than_it_reads_is_noted(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A note leaves the exit code alone."""
    (said,) = told(f"{text}\n")
    assert words in said
    assert checked("broker", f"{ROOT}{text}\n", tmp_path) == 0
    assert words in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "rest"),
    [
        ("namesrv", "kvConfigPath="),
        ("controller", "controllerDLegerPeers=n0-127.0.0.1:9878\ncontrollerStorePath="),
    ],
)
def test_other_servers_are_asked_the_same(
    kind: str, rest: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "nobody replaces ~" in str(checked(kind, f"{rest}~/data\n", tmp_path))
    text = f"{rest}/tmp/data\nmetricsPort=5558\nmetricsAddress=0.0.0.0\n"
    assert checked(kind, text, tmp_path) == 0
    assert "whoever reaches port 5558 reads /metrics" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("storePathConsumeQueue=/a", "queues are always in the folder consumequeue of storePath"),
        ("storePathIndex=/a", "the index is always in the folder index of storePathRootDir"),
        ("storeCheckpoint=/a", "the checkpoint is always the file checkpoint in storePathRootDir"),
        ("abortFile=/a", "the file abort is always in storePathRootDir"),
        ("maxCommitLogFilesNumber=9", "files of the log are kept for fileReservedTime hours"),
        ("timerPrecisionMs=100", "timer messages wait in the commit log here, without files and"),
        ("reviveQueueNum=9", "the log alone says which messages are out"),
        ("enableSlaveActingMaster=true", "enableControllerMode elects one of them"),
        ("metricsExporterType=PROM", "metricsPort serves /metrics to Prometheus"),
        ("authenticationEnabled=false", "aclEnable=true and plain_acl.yml say who may do what"),
    ],
)
def test_keys_of_other_versions_have_their_own_sentence(
    line: str, sentence: str, tmp_path: Path
) -> None:
    """No wrong hint, and `--check` takes a file that Java takes."""
    key = line.partition("=")[0]
    (notice,) = [text for text in told(ROOT + NAMED + line) if key in text]
    assert sentence in notice
    assert "did you mean" not in notice
    text = f"namesrvAddr=10.0.0.5:9876\nstorePathRootDir={tmp_path}\nbrokerIP1=10.0.0.6\n{line}\n"
    assert checked("broker", text, tmp_path) == 0


def test_a_key_that_would_refuse_strangers_fails_the_check(tmp_path: Path) -> None:
    text = f"{NAMED}storePathRootDir={tmp_path}\nauthenticationEnabled=true\n"
    assert "authenticationEnabled has no effect" in str(checked("broker", text, tmp_path))


@pytest.mark.parametrize("line", ["brokerIP1=fd00::6", "bindAddress=::\nbrokerIP1=10.0.0.6"])
def test_without_an_address_to_bind_to_both_families_are_listened_on(line: str) -> None:
    assert told(ROOT + NAMED + line) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("brokerIP1=fd00::6", "listens on IPv4 only (this machine has no IPv6)"),
        ("controllerAddr=[fd00::9]:9878", "cannot connect to an address of IPv6"),
    ],
)
def test_a_machine_without_ipv6(line: str, words: str) -> None:
    machine = replace(HERE, has_ipv6=False)
    notices = [item.text for item in load_broker(ROOT + NAMED + line, machine, name="b").notices]
    assert any(words in text for text in notices)


def test_the_own_entry_of_a_controller() -> None:
    text = "controllerDLegerPeers=n0-[fd00::6]:9878;n1-[fd00::7]:9878\ncontrollerDLegerSelfId=n0\n"
    assert load_controller(text, HERE).notices == []
    (notice,) = load_controller(text + "bindAddress=0.0.0.0\n", HERE).notices
    assert "controllerDLegerPeers: fd00::6 is an address of IPv6" in notice.text


def test_what_a_client_misses() -> None:
    """A note: it may be meant."""
    (note,) = told(f"{ROOT}{NAMED}grpcServerPort=8081\n")
    assert "consumers of RocketMQ 5 need popEnable=true" in note
    assert not told(f"{ROOT}{NAMED}grpcServerPort=8081\npopEnable=true\n")
    (note,) = told(f"{ROOT}{NAMED}zooKeeper=a\n")
    assert note.endswith("unknown key zooKeeper"), "no key is near"
