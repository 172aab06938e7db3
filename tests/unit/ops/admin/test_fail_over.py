"""`promote` and `demote` on a simulated pair: what is said, what is refused, what is done."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import click
import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.ops.admin.confirm import must_be_askable
from rmq_ha.ops.admin.demote import demote_broker
from rmq_ha.ops.admin.promote import promote_broker
from rmq_ha.ops.admin.role_change import ChangeOptions, RoleChange
from rmq_ha.ops.admin.role_file import RoleFile
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, USAGE, Session
from rmq_ha.server.broker.broker import Broker
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import say

PATH = "/etc/broker.properties"
TOPIC = "TBW102"


class Pair:
    """A master on machine `a`, its slave on `b`, each with its properties file."""

    def __init__(self, **options: Any) -> None:
        self.cluster = SimCluster()
        self.as_json = options.get("as_json", True)
        self.commands: list[str] = []
        self.exit_code = 0
        self.add("a", BrokerRole.SYNC_MASTER, 0)
        self.add("b", BrokerRole.SLAVE, 1)
        self.client = self.cluster.client()
        self.cluster.wait(self.client.start())
        self.cluster.run(5)
        self.sent = 0

    def add(self, name: str, role: BrokerRole, broker_id: int) -> None:
        broker = {"broker_name": "broker-a", "broker_id": broker_id}
        self.cluster.add(name, role, broker=broker)
        self.add_file(name, role, broker_id)

    def add_file(self, name: str, role: BrokerRole, broker_id: int) -> None:
        host = self.cluster.hosts[name]
        text = (
            f"# ours\nbrokerName=broker-a\nbrokerIP1={host.ip}\nlistenPort=10911\n"
            f"namesrvAddr={self.cluster.namesrv.address}\nbrokerRole={role.value}\n"
            f"brokerId={broker_id}\n"
        )
        host.disk.replace(PATH, text.encode())

    def settings(self, name: str) -> dict[str, str]:
        lines = self.cluster.hosts[name].disk.read_bytes(PATH).decode().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def append(self, name: str, text: str) -> None:
        disk = self.cluster.hosts[name].disk
        disk.replace(PATH, disk.read_bytes(PATH) + text.encode())

    def send(self, name: str, count: int) -> None:
        for _ in range(count):
            self.sent += 1
            body = b"m%d" % self.sent
            request = send_request("p", TOPIC, 0, body, f"UNIQ_KEY\x01{self.sent}", 1)
            address = self.cluster.address(name)
            assert self.cluster.wait(self.client.invoke(address, request, 9000)).code in (0, 11, 12)

    def commit(self, name: str, offset: int) -> None:
        ext = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
        command = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext)
        self.cluster.wait(self.client.invoke(self.cluster.address(name), command, 9000))

    def restart(self, name: str) -> Deferred[int]:
        """As a service manager does: the process reads its file."""
        return Deferred.fromCoroutine(self._restart(name))

    async def _restart(self, name: str) -> int:
        self.commands.append(name)
        if self.exit_code:
            return self.exit_code
        host, cluster = self.cluster.hosts[name], self.cluster
        if name in cluster.brokers:
            old = cluster.brokers.pop(name)
            configuration = old.configuration
            await old.stop()
        else:
            configuration = self.last
        given = self.settings(name)
        configuration.store.broker_role = BrokerRole(given["brokerRole"])
        configuration.broker.broker_id = int(given["brokerId"])
        own = given.get("haSetAsideDivergedTail", "true")
        configuration.ours.ha_set_aside_diverged_tail = own == "true"
        cluster.brokers[name] = Broker(host.seams, configuration)
        await cluster.brokers[name].start()
        return 0

    def crash(self, name: str, *, power: bool = False) -> None:
        self.last = self.cluster.brokers[name].configuration
        self.cluster.crash(name, power=power)

    def run(self, what: str, name: str, **how: Any) -> tuple[int, Any, str]:
        """Exit code, stdout (from JSON), stderr."""
        host = self.cluster.hosts[name]
        seams = how.pop("seams", None) or (host.seams if host.is_running else host.restart())
        less = how.pop("less", False)
        given = {
            "yes": True,
            "wait": 60.0,
            "restart": "again",
            "run": lambda _: self.restart(name),
        } | how

        async def work(session: Session) -> int | None:
            surroundings = Surroundings({}, "/root", "host", host.ip, "/")
            change = RoleChange(
                session, RoleFile(host.disk, PATH, surroundings), ChangeOptions(**given)
            )
            if what == "promote":
                return await promote_broker(change, BrokerRole.SYNC_MASTER, less=less)
            return await demote_broker(change, None)

        said = say(self.cluster, work, seams, as_json=self.as_json, namesrv="")
        shown = json.loads(said.out) if self.as_json and said.out else said.out
        return said.code, shown, said.err

    def until_following(self, name: str) -> None:
        def is_behind() -> bool:
            link = self.cluster.brokers[name].journal.service.statistics().master
            return link is None or link.state != "following"

        assert self.cluster.clock.run_while(is_behind, 60) is not False
        assert not is_behind()


@pytest.fixture
def pair() -> Pair:
    made = Pair()
    made.until_following("b")
    return made


def test_a_dead_master_is_replaced_and_comes_back(pair: Pair) -> None:
    """The whole way: nothing that was SEND_OK is lost, what only the old one had is shown."""
    pair.send("a", 5)
    pair.commit("a", 3)
    pair.cluster.run(15)
    pair.cluster.wait(pair.cluster.brokers.pop("b").stop())
    pair.send("a", 4)
    pair.crash("a")
    pair.add("b", BrokerRole.SLAVE, 1)
    code, done, error = pair.run("promote", "b")
    assert code == 0, error
    assert (done["role"], done["done"]) == ("SYNC_MASTER", True)
    assert pair.settings("b") | {"brokerRole": "SYNC_MASTER", "brokerId": "0"} == pair.settings("b")
    kept = pair.cluster.hosts["b"].disk.read_bytes(f"{PATH}.bak")
    assert b"brokerRole=SLAVE" in kept
    pair.send("b", 7)
    root = pair.last.store.store_path_root_dir
    for name, text in (("torn", b'{"messages": 3'), ("another", b"[1]")):
        pair.cluster.hosts["a"].disk.make_dirs(f"{root}/setaside/{name}")
        pair.cluster.hosts["a"].disk.replace(f"{root}/setaside/{name}/about.json", text)
    code, done, error = pair.run("demote", "a")
    assert code == 0, error
    assert done["done"]
    assert [item["messages"] for item in done["set_aside"]] == [4]
    assert done["set_aside"][0]["topics"] == {TOPIC: 4}
    assert pair.settings("a") | {"brokerRole": "SLAVE", "brokerId": "1"} == pair.settings("a")
    store = pair.cluster.brokers["a"].store
    pair.cluster.run(2)
    assert store.max_offset_in_queue(TOPIC, 0) == 12
    before = list(pair.commands)
    assert [pair.run(*again)[0] for again in (("promote", "b"), ("demote", "a"))] == [0, 0]
    assert pair.commands == before  # what is done already restarts nobody


def test_a_master_that_answers_is_not_replaced(pair: Pair) -> None:
    """Two would part; what its slave, which is cut off, lacks is said by queue and by group."""
    pair.cluster.brokers["b"].journal.service.stop()
    pair.send("a", 3)
    pair.commit("a", 2)
    code, told, error = pair.run("promote", "b")
    assert code == FAILED
    assert "answers. Two masters would" in json.loads(error)["error"]
    assert told["lacks"] == [
        {"topic": TOPIC, "queue": 0, "group": None, "here": 0, "there": 3, "lacks": 3},
        {"topic": TOPIC, "queue": 0, "group": "g", "here": 0, "there": 2, "lacks": 2},
    ]
    code, told, _ = pair.run("promote", "b", dry_run=True)
    assert (code, len(told["lacks"])) == (0, 2)
    assert [item["after"] for item in told["changes"]] == ["SYNC_MASTER", "0"]
    assert not pair.commands
    assert pair.settings("b")["brokerRole"] == "SLAVE"


def test_a_dead_machine_that_is_still_listed_is_said(pair: Pair) -> None:
    """It may only be cut off from here: the operator is told before he says yes."""
    pair.send("a", 2)
    pair.cluster.run(3)
    pair.crash("a", power=True)
    pair.cluster.run(6)
    code, done, error = pair.run("promote", "b")
    assert code == 0, error
    assert "still list the old master" in done["warnings"][0]
    assert done["slave"]["end"] > 0
    assert done["slave"]["silent_ms"] > 5000
    assert done["old_master"]["role"] is None


def test_it_is_not_done_before_the_broker_runs_as_what_the_file_says(pair: Pair) -> None:
    """Nobody restarts it: exit code 1 and what to do; then the same command verifies."""
    pair.crash("a")
    code, told, error = pair.run("promote", "b", restart="", wait=3.0)
    assert code == FAILED
    assert not told["done"]
    assert "is SLAVE now. Restart the broker" in json.loads(error)["error"]
    pair.cluster.wait(pair.restart("b"))
    code, told, _ = pair.run("promote", "b", restart="", wait=3.0)
    assert (code, told["done"], told["changes"]) == (0, True, [])


def test_a_restart_command_that_fails_is_said(pair: Pair) -> None:
    pair.crash("a")
    pair.exit_code = 5
    code, _, error = pair.run("promote", "b")
    assert code == FAILED
    assert "exit code 5" in error
    assert pair.settings("b")["brokerRole"] == "SYNC_MASTER"


def test_an_old_master_that_runs_again_takes_nothing_back(pair: Pair) -> None:
    """A service manager started it while the slave was promoted."""
    pair.crash("a")

    async def both() -> int:
        await pair.restart("b")
        pair.cluster.hosts["a"].restart()
        return await pair.restart("a")

    code, told, error = pair.run(
        "promote", "b", run=lambda _: Deferred.fromCoroutine(both()), wait=3
    )
    assert (code, told["done"]) == (0, True), error
    pair.cluster.run(40)
    brokers = pair.cluster.namesrv.namesrv.routes.cluster_info().brokers["broker-a"]
    assert brokers.addresses == {0: pair.cluster.address("b")}


def test_an_old_master_that_runs_again_is_noticed(pair: Pair) -> None:
    """As one of Java does at a name server of 4.9, which sends clients to whoever came last."""
    pair.cluster.namesrv.configuration.namesrv_last_registration_wins = True
    pair.crash("a")
    pair.last.ours.start_beside_another_master = True

    async def both() -> int:
        await pair.restart("b")
        pair.cluster.hosts["a"].restart()
        return await pair.restart("a")

    code, told, error = pair.run(
        "promote", "b", run=lambda _: Deferred.fromCoroutine(both()), wait=3
    )
    assert (code, told["done"]) == (FAILED, False)
    assert "Look whether the old master runs again" in error


def test_a_log_that_got_shorter_is_noticed(pair: Pair) -> None:
    """The restart found another disk, or damage."""
    pair.send("a", 3)
    pair.cluster.run(2)
    pair.crash("a")

    def elsewhere(_: str) -> Deferred[int]:
        pair.cluster.brokers["b"].configuration.store.store_path_root_dir = "/other"
        pair.cluster.brokers["b"].configuration.store.store_path_commit_log = "/other/commitlog"
        return pair.restart("b")

    code, told, error = pair.run("promote", "b", run=elsewhere)
    assert (code, told["done"]) == (FAILED, False)
    assert "before the restart and ends at 0 now" in error


def test_a_slave_that_is_owed_messages_is_not_promoted(pair: Pair) -> None:
    """It would not start as a master; who can do without says so in the file."""
    pair.send("a", 3)
    pair.cluster.run(15)
    store = pair.cluster.brokers["b"].store
    for name, end in (("fetched", store.log.max_offset), ("lacks", store.log.max_offset + 1000)):
        about = {"to": end, "owed": True}
        path = f"{store.root}/setaside/damaged-{name}/about.json"
        pair.cluster.hosts["b"].disk.replace(path, json.dumps(about).encode())
    pair.crash("a")
    code, _, err = pair.run("promote", "b")
    assert code == FAILED
    assert f"has to reach {end} ({path})" in err
    assert "keepDamagedLog=false" in err
    assert pair.settings("b")["brokerRole"] == "SLAVE"
    code, report, _ = pair.run("promote", "b", dry_run=True)
    assert (code, [f"has to reach {end} ({path})" in text for text in report["warnings"][-1:]]) == (
        0,
        [True],
    )
    pair.append("b", "keepDamagedLog=false\n")
    pair.cluster.brokers["b"].configuration.ours.keep_damaged_log = False
    code, report, _ = pair.run("promote", "b")
    assert (code, report["done"]) == (0, True)
    assert "remove it from the file afterwards" in report["warnings"][-1]


def test_a_new_master_that_is_silent_is_not_followed(pair: Pair) -> None:
    """It died as well, and the name server does not know yet."""
    pair.crash("a")
    assert pair.run("promote", "b")[0] == 0
    before = pair.settings("a")
    pair.cluster.crash("b", power=True)
    code, _, error = pair.run("demote", "a")
    assert code == FAILED
    assert "name servers name 127.0.0.3:10911 the master, but" in error
    assert pair.settings("a") == before


def test_no_name_server_left(pair: Pair) -> None:
    """It is the master, but nobody finds it: exit code 4."""
    pair.crash("a")
    pair.cluster.namesrv.host.crash()
    code, told, _ = pair.run("promote", "b")
    assert (code, told["done"]) == (NO_ANSWER, True)
    assert "Clients find a master only through name servers" in told["warnings"][0]


def test_the_only_master_is_not_demoted(pair: Pair) -> None:
    code, _, error = pair.run("demote", "a")
    assert code == FAILED
    assert "promote its slave first" in error
    assert pair.settings("a")["brokerRole"] == "SYNC_MASTER"
    pair.crash("a")
    code, _, error = pair.run("demote", "a", wait=1.0)
    assert code == FAILED
    assert "no other master of broker-a is known: promote its slave first" in error
    assert pair.settings("a")["brokerRole"] == "SYNC_MASTER"


def test_a_slave_that_stays_out_is_not_called_done(pair: Pair) -> None:
    """haSetAsideDivergedTail=false: it is warned of before, and why is said after."""
    pair.append("a", "haSetAsideDivergedTail=false\n")
    pair.send("a", 2)
    pair.cluster.wait(pair.cluster.brokers.pop("b").stop())
    pair.send("a", 9)
    pair.crash("a")
    pair.add("b", BrokerRole.SLAVE, 1)
    assert pair.run("promote", "b")[0] == 0
    pair.send("b", 6)  # its log ends before the old one's
    code, told, error = pair.run("demote", "a", wait=8.0)
    assert (code, told["done"]) == (FAILED, False)
    assert "will not follow the master" in told["warnings"][0]
    assert "haSetAsideDivergedTail" in error


def test_a_slave_that_has_not_everything_is_not_called_done(pair: Pair) -> None:
    """It is connected, and what its master sends does not arrive any more."""
    elsewhere = pair.cluster.world.add("admin").seams
    pair.cluster.world.network.cut("a", "b")
    pair.send("a", 1)
    code, told, error = pair.run("demote", "b", wait=3.0, seams=elsewhere)
    assert (code, told["done"], told["changes"]) == (FAILED, False, [])
    assert "its state is following: its log ends at 0, the master's at" in error
    assert not pair.commands


@pytest.mark.parametrize(("of_file", "free"), [(3, "3"), (2, "1")])
def test_a_slave_gets_an_id_that_nobody_has(pair: Pair, of_file: int, free: str) -> None:
    """Its own, unless another slave has it; `b`, which had 1, is the master."""
    pair.add("c", BrokerRole.SLAVE, 2)
    pair.until_following("c")
    pair.crash("a")
    assert pair.run("promote", "b")[0] == 0
    pair.add_file("a", BrokerRole.SLAVE, of_file)
    code, told, error = pair.run("demote", "a", dry_run=True)
    assert code == 0, error
    after = {item["key"]: item["after"] for item in told["changes"]}
    assert after.get("brokerId", str(of_file)) == free


def test_without_any_name_server_it_is_said_who_should_name_one(pair: Pair) -> None:
    pair.crash("a")
    disk = pair.cluster.hosts["b"].disk
    kept = [line for line in disk.read_bytes(PATH).splitlines(True) if b"namesrv" not in line]
    disk.replace(PATH, b"".join(kept) + b"haMasterAddress=10.0.0.9:10912\n")
    code, told, error = pair.run("promote", "b", dry_run=True)
    assert code == 0, error
    assert "neither namesrvAddr of the file nor --namesrv" in told["warnings"][0]


def test_the_slave_with_less_is_promoted_only_on_demand(pair: Pair) -> None:
    """The other one would set aside what only it has, SEND_OK or not."""
    pair.add("c", BrokerRole.SLAVE, 2)
    pair.until_following("c")
    pair.cluster.brokers["b"].journal.service.stop()
    pair.send("a", 3)
    pair.crash("a")
    _, told, _ = pair.run("promote", "b", dry_run=True)
    assert any("(brokerId 2) has more" in text for text in told["warnings"])
    code, told, error = pair.run("promote", "b")
    assert (code, told["done"]) == (FAILED, False)
    assert (
        "Promote 127.0.0.5:10911 instead. To promote this slave without the messages that only"
        in error
    )
    assert pair.settings("b")["brokerRole"] == "SLAVE"
    code, told, error = pair.run("promote", "b", less=True)
    assert code == 0, error
    assert any("(brokerId 2) has more" in text for text in told["warnings"])


def test_a_slave_that_does_not_run_is_not_promoted_beside_one_that_does(pair: Pair) -> None:
    """Which of them has more is not known."""
    pair.add("c", BrokerRole.SLAVE, 2)
    pair.send("a", 3)
    pair.cluster.run(3)
    pair.crash("a")
    pair.crash("b")
    code, _, error = pair.run("promote", "b")
    assert code == FAILED
    assert "This slave does not run, so the logs cannot be compared. Start this slave" in error


@pytest.mark.parametrize("size", [3, 20, 60])
def test_a_piece_of_a_record_is_no_loss(pair: Pair, size: int) -> None:
    """A master that was killed had sent so much of a frame: the restart takes it away."""
    pair.add("c", BrokerRole.SLAVE, 2)
    pair.send("a", 3)
    pair.cluster.run(3)
    whole = pair.cluster.brokers["b"].store.log.max_offset
    start = pair.cluster.brokers["b"].store.queues.get(TOPIC, 0).unit(2)[0]
    pair.crash("a")
    for name in "b", "c":
        log = pair.cluster.brokers[name].store.log
        piece = bytearray(log.read(start, size))
        piece[28:36] = whole.to_bytes(8, "big")[: max(0, size - 28)]
        if name == "b":
            log.append_raw(whole, bytes(piece[:size]))
    pair.cluster.run(1)
    code, told, error = pair.run("promote", "c", dry_run=True)
    assert not [text for text in told["warnings"] if "has more" in text]
    assert pair.cluster.brokers["b"].store.log.max_offset == whole + size
    code, told, error = pair.run("promote", "b")
    assert (code, told["done"]) == (0, True), error
    assert pair.cluster.brokers["b"].store.log.max_offset == whole


def test_where_groups_stand_is_counted_before_it_asks(pair: Pair) -> None:
    """One consumed what the slave does not have, another one not all that it has."""
    pair.send("a", 5)
    pair.cluster.run(12)
    pair.crash("a")
    pair.commit("b", 9)
    other = {"consumerGroup": "other", "topic": TOPIC, "queueId": "0", "commitOffset": "2"}
    command = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, other)
    pair.cluster.wait(pair.client.invoke(pair.cluster.address("b"), command, 9000))
    _, told, _ = pair.run("promote", "b", dry_run=True)
    assert told["groups"] == [
        {"group": "g", "topic": TOPIC, "waiting": 0, "beyond": 4},
        {"group": "other", "topic": TOPIC, "waiting": 3, "beyond": 0},
    ]
    assert not told["warnings"]
    pair.as_json = False
    _, text, _ = pair.run("promote", "b", dry_run=True)
    assert (
        "3 messages come after these offsets, and those of them that a group consumed in these"
        in text
    )
    assert "1 groups consumed messages that this slave lacks (column beyond)" in text
    pair.append("b", "checkCommittedOffsets=false\n")
    _, _, error = pair.run("promote", "b", dry_run=True)
    assert f"g will skip the next 4 messages of {TOPIC}" in error


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("enableDLegerCommitLog=true\ndLegerGroup=g\ndLegerPeers=n0-127.0.0.1:1\n", "dledger"),
        ("brokerName=other\n", "Name the file of broker-a"),
    ],
)
def test_the_wrong_file_changes_nothing(pair: Pair, text: str, says: str) -> None:
    pair.append("b", text + "dLegerSelfId=n0\n" * ("dLeger" in text))
    code, _, error = pair.run("promote", "b")
    assert code in (FAILED, USAGE)
    assert says in error
    assert not pair.commands


def test_an_address_of_the_old_pair_does_not_stay(pair: Pair) -> None:
    """A fixed haMasterAddress would have it follow itself, or a dead machine, some day."""
    pair.append("b", "haMasterAddress=10.0.0.9:10912\n")
    pair.crash("a")
    assert pair.run("promote", "b")[0] == 0
    assert pair.settings("b")["haMasterAddress"] == ""


def test_people_read_it_too(pair: Pair) -> None:
    pair.as_json = False
    pair.send("a", 2)
    pair.cluster.run(12)
    pair.crash("a")
    code, text, error = pair.run("promote", "b")
    assert code == 0, error
    assert "is SLAVE now, and becomes SYNC_MASTER" in text
    assert "brokerRole=SLAVE becomes brokerRole=SYNC_MASTER" in text
    assert "this slave last heard its master" in text
    assert "groups continue at the offsets that this slave copied" in text
    assert "rmqha-admin demote" in text
    assert "nothing to change" not in text
    assert f"{PATH}: nothing to change" in pair.run("promote", "b")[1]


def test_who_says_no_changes_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.crash("a")
    monkeypatch.setattr("sys.stdin", StringIO("n\n"))
    code, told, error = pair.run("promote", "b", yes=False)
    assert (code, told["done"]) == (FAILED, False)
    assert "nothing was changed" in error
    assert pair.settings("b")["brokerRole"] == "SLAVE"


def test_nobody_is_there_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script without --yes changes nothing."""
    monkeypatch.setattr("sys.stdin", StringIO())
    with pytest.raises(click.UsageError, match="--yes"):
        must_be_askable(yes=False, dry_run=False)
    must_be_askable(yes=False, dry_run=True)
