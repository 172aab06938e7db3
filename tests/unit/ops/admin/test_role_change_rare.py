"""`promote` and `demote` where something is missing, silent or other than it should be."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.ops.admin.role_change import ChangeOptions, RoleChange
from rmq_ha.ops.admin.role_file import LineChange, RoleFile
from rmq_ha.ops.admin.session import FAILED, USAGE, Session
from rmq_ha.testing.host import World
from tests.unit.ops.admin.admin_kit import say
from tests.unit.ops.admin.test_fail_over import PATH, TOPIC, Pair
from tests.unit.ops.admin.typing_kit import Typist


@pytest.fixture
def pair() -> Pair:
    made = Pair()
    made.until_following("b")
    return made


def told(pair: Pair, what: str, name: str, **how: Any) -> tuple[int, str, str]:
    """As people see it."""
    pair.as_json = False
    return pair.run(what, name, **how)


def test_a_slave_that_does_not_run_is_promoted_when_it_does(pair: Pair) -> None:
    """What it has is not known before; the command that restarts it starts it."""
    pair.crash("a")
    pair.crash("b")
    code, text, error = told(pair, "promote", "b")
    assert code == 0, error
    first = text.splitlines()[0]
    assert first.startswith(f"broker-a at {pair.cluster.address('b')} does not answer (")
    assert first.endswith("and becomes SYNC_MASTER")
    assert "this broker does not run, so nobody can say which messages it has" in error
    assert "Its log ends at" not in text
    assert pair.commands == ["b"]


def test_who_is_not_there_after_the_restart_is_said(pair: Pair) -> None:
    pair.crash("a")
    pair.crash("b")
    code, told_of, error = pair.run("promote", "b", restart="", wait=1.0)
    assert (code, told_of["done"]) == (FAILED, False)
    said = json.loads(error)["error"]
    assert f"the file {PATH} makes the broker the master, but" in said
    assert f"{pair.cluster.address('b')} does not answer (" in said
    assert "still runs as" not in said


def test_what_is_known_of_a_dead_master_is_said(pair: Pair) -> None:
    pair.send("a", 2)
    pair.cluster.run(12)
    pair.crash("a")
    pair.cluster.run(4)
    code, text, error = told(pair, "promote", "b", dry_run=True)
    assert code == 0, error
    end = pair.cluster.brokers["b"].store.log.max_offset
    assert f"Its log ends at {end}. Only the old master could say" in text
    lines = text.splitlines()
    (heard,) = [line for line in lines if "last heard its master" in line]
    assert heard in (
        f"  this slave last heard its master {seconds} s ago" for seconds in range(3, 10)
    )
    (copied,) = [line for line in lines if "groups continue at" in line]
    assert copied in (
        f"  groups continue at the offsets that this slave copied {seconds} s ago: no message comes"
        " after these offsets, so none comes again"
        for seconds in range(3, 20)
    )
    assert "is the master already" not in text
    assert "has not copied" not in error


def test_a_slave_that_never_got_the_tables_is_warned_of(pair: Pair) -> None:
    pair.crash("a")
    pair.cluster.wait(pair.cluster.brokers.pop("b").stop())
    pair.add("b", BrokerRole.SLAVE, 1)
    pair.cluster.run(2)
    code, report, error = pair.run("promote", "b", dry_run=True)
    assert code == 0, error
    assert report["slave"]["tables_seconds"] is None
    assert (
        "this slave has not copied topics, groups and offsets of its master since it started"
        in " ".join(report["warnings"])
    )


def test_who_is_the_master_already_is_told_so_and_nothing_is_restarted(pair: Pair) -> None:
    code, text, error = told(pair, "promote", "a")
    assert code == 0, error
    address = pair.cluster.address("a")
    assert f"{address} is the master already; to promote a slave of it, give the slave's" in text
    assert f"{PATH}: nothing to change" in text
    assert f"{address} is SYNC_MASTER of broker-a; its log ends at" in text
    assert pair.commands == []
    assert error == ""


def test_a_master_whose_file_says_slave_gets_its_file_only(pair: Pair) -> None:
    """It is what it shall be: nobody restarts it."""
    pair.add_file("a", BrokerRole.SLAVE, 1)
    code, report, _ = pair.run("promote", "a")
    assert (code, report["done"]) == (0, True)
    assert pair.settings("a")["brokerRole"] == "SYNC_MASTER"
    assert pair.commands == []
    assert "old_master" not in report


def test_a_slave_with_as_much_is_not_called_better(pair: Pair) -> None:
    pair.add("c", BrokerRole.SLAVE, 2)
    pair.until_following("c")
    pair.send("a", 3)
    pair.cluster.run(3)
    pair.crash("a")
    code, report, _ = pair.run("promote", "b", dry_run=True)
    assert code == 0
    assert not [text for text in report["warnings"] if "has more" in text]
    pair.cluster.crash("c", power=True)
    code, report, _ = pair.run("promote", "b", dry_run=True)
    assert (code, [text for text in report["warnings"] if "has more" in text]) == (0, [])


def test_a_second_master_stands_aside_and_is_made_a_slave(pair: Pair) -> None:
    """Somebody started the old master as what it was, beside the new one."""
    pair.crash("a")
    assert pair.run("promote", "b")[0] == 0
    pair.cluster.hosts["a"].restart()
    pair.cluster.wait(pair.restart("a"))
    pair.cluster.wait(pair.cluster.brokers["b"].registration.register_all())
    pair.cluster.run(1)
    pair.commands.clear()
    code, text, error = told(pair, "demote", "a")
    assert f"SYNC_MASTER now, and becomes a slave of {pair.cluster.address('b')}" in text
    assert f"It stands aside for {pair.cluster.address('b')}, and takes no messages" in text
    assert code == 0, error
    assert pair.commands == ["a"]
    assert "It had no message that the master lacks" in text
    assert (
        f"{pair.cluster.address('a')} follows {pair.cluster.address('b')}; its log ends at" in text
    )


def test_a_slave_that_follows_is_left_as_it_is(pair: Pair) -> None:
    code, text, error = told(pair, "demote", "b")
    assert code == 0, error
    assert f"SLAVE now, and becomes a slave of {pair.cluster.address('a')}" in text
    assert pair.commands == []
    assert error == ""


def test_who_is_no_slave_after_the_restart_is_said(pair: Pair) -> None:
    """Nobody restarted it; then it does not come back."""
    pair.crash("a")
    assert pair.run("promote", "b")[0] == 0
    pair.cluster.hosts["a"].restart()
    code, report, error = pair.run("demote", "a", restart="", wait=1.0)
    assert (code, report["done"]) == (FAILED, False)
    assert f"not done: the file {PATH} makes it a slave, but it does not answer (" in error


def test_a_demotion_without_a_name_server_is_refused(pair: Pair) -> None:
    pair.crash("a")
    disk = pair.cluster.hosts["a"].disk
    kept = [line for line in disk.read_bytes(PATH).splitlines(True) if b"namesrv" not in line]
    disk.replace(PATH, b"".join(kept))
    code, _, error = pair.run("demote", "a")
    assert (code, "set namesrvAddr to a name server" in error) == (FAILED, True)


def test_a_dry_run_of_a_demotion_does_not_wait_for_a_master(pair: Pair) -> None:
    pair.crash("a")
    pair.cluster.hosts["a"].restart()
    began = pair.cluster.clock.seconds()
    code, report, error = pair.run("demote", "a", dry_run=True)
    assert (code, report["done"]) == (FAILED, False)
    assert "no other master of broker-a is known" in error
    assert pair.cluster.clock.seconds() - began < 20


def around(text: str) -> tuple[World, RoleFile]:
    world = World(1)
    host = world.add("a")
    host.disk.replace(PATH, text.encode())
    return world, RoleFile(host.disk, PATH, Surroundings({}, "/root", "host", host.ip, "/"))


def test_the_file_says_who_the_broker_is() -> None:
    text = (
        "brokerName=b\nbrokerIP1=10.0.0.9\nlistenPort=10921\nbrokerRole=SLAVE\nbrokerId=3\n"
        "namesrvAddr=10.0.0.1:9876\n"
    )
    world, file = around(text)
    assert (file.broker_name, file.address, file.role) == ("b", "10.0.0.9:10921", BrokerRole.SLAVE)
    assert file.changes(BrokerRole.SLAVE, 3) == []
    changes = file.changes(BrokerRole.SYNC_MASTER, 0)
    assert changes == [
        LineChange("brokerRole", "SLAVE", "SYNC_MASTER"),
        LineChange("brokerId", "3", "0"),
    ]
    disk = world.hosts["a"].disk
    file.write([])
    assert not disk.exists(f"{PATH}.bak")
    file.write(changes)
    expected = text.replace("=SLAVE", "=SYNC_MASTER").replace("brokerId=3", "brokerId=0")
    assert disk.read_bytes(PATH).decode() == expected
    assert disk.read_bytes(f"{PATH}.bak").decode() == text


def test_a_fixed_address_stays_where_no_name_server_knows_the_master() -> None:
    _, file = around("brokerRole=SLAVE\nbrokerId=1\nhaMasterAddress=10.0.0.1:10912\n")
    assert [item.key for item in file.changes(BrokerRole.SLAVE, 1)] == []
    _, file = around(
        "brokerRole=SLAVE\nbrokerId=1\nhaMasterAddress=10.0.0.1:10912\nnamesrvAddr=10.0.0.1:9876\n"
    )
    assert file.changes(BrokerRole.SLAVE, 1) == [
        LineChange("haMasterAddress", "10.0.0.1:10912", "")
    ]
    _, file = around("namesrvAddr=10.0.0.1:9876\n")
    assert file.changes(BrokerRole.SLAVE, 1) == [
        LineChange("brokerRole", None, "SLAVE"),
        LineChange("brokerId", None, "1"),
    ]


def test_a_file_that_cannot_be_read_or_written_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    world, file = around("brokerRole=SLAVE\nbrokerId=1\nnamesrvAddr=10.0.0.1:9876\n")
    disk = world.hosts["a"].disk
    with pytest.raises(ConfigurationError, match="/etc/none: No such file or directory"):
        RoleFile(disk, "/etc/none", Surroundings({}, "/root", "host", "10.0.0.1", "/"))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "replace", full)
    with pytest.raises(ConfigurationError, match="No space left on device; nothing changed"):
        file.write(file.changes(BrokerRole.SYNC_MASTER, 0))
    with pytest.raises(ConfigurationError):
        file.changes(BrokerRole.SLAVE, 0)


def test_what_is_said_while_it_is_carried_out(pair: Pair) -> None:
    host = pair.cluster.hosts["b"]
    ran: list[str] = []

    def run(command: str) -> Deferred[int]:
        ran.append(command)
        done: Deferred[int] = Deferred()
        done.callback(0)
        return done

    def carried(**how: Any) -> str:
        async def work(session: Session) -> None:
            around = Surroundings({}, "/root", "host", host.ip, "/")
            file = RoleFile(host.disk, PATH, around)
            change = RoleChange(session, file, ChangeOptions(run=run, **how))
            role = BrokerRole.SLAVE if how.get("wait") == 7.0 else BrokerRole.SYNC_MASTER
            await change.carry_out(file.changes(role, 1), restarts=True)

        return say(pair.cluster, work, host.seams, as_json=False, namesrv="").err

    assert carried(wait=7.4).splitlines() == [
        f"{PATH} is changed; as it was: {PATH}.bak",
        f"now restart the broker {pair.cluster.address('b')}; waiting 7 s",
    ]
    assert carried(restart="again").splitlines() == ["running: again"]
    assert ran == ["again"]


def test_waiting_ends_in_time_when_it_is_found_or_when_somebody_has_had_enough(pair: Pair) -> None:
    host = pair.cluster.hosts["b"]
    looks: list[float] = []

    def until(found_at: float, wait: float, enough_at: float = 99.0) -> Any:
        looks.clear()
        began = pair.cluster.clock.seconds()

        async def look() -> str | None:
            looks.append(pair.cluster.clock.seconds() - began)
            return "found" if looks[-1] >= found_at else None

        async def work(session: Session) -> None:
            around = Surroundings({}, "/root", "host", host.ip, "/")
            change = RoleChange(
                session, RoleFile(host.disk, PATH, around), ChangeOptions(wait=wait)
            )
            session.host.clock.callLater(enough_at, session.interrupted.callback, None)
            session.output.fields({"found": await change.wait_until("until", look)})

        return say(pair.cluster, work, host.seams).json["found"]

    assert (until(1.2, 3.0), looks) == ("found", pytest.approx([0, 0.5, 1.0, 1.5]))
    assert (until(9.0, 1.0), looks) == (None, pytest.approx([0, 0.5, 1.0]))
    assert (until(9.0, 8.0, 0.7), looks) == (None, pytest.approx([0, 0.5, 1.0]))


def test_who_fails_over_is_told_each_step(pair: Pair) -> None:
    """What the file becomes, what may be lost, where it lies then, and what comes next."""
    pair.send("a", 2)
    pair.cluster.run(12)
    pair.crash("a")
    pair.cluster.run(4)
    one, two = pair.cluster.address("a"), pair.cluster.address("b")
    end = pair.cluster.brokers["b"].store.log.max_offset
    code, text, error = told(pair, "promote", "b")
    assert code == 0
    assert re.sub(r"\d+ s ago", "N s ago", text).splitlines() == [
        f"broker-a at {two} is SLAVE now, and becomes SYNC_MASTER",
        f"Its log ends at {end}. Only the old master could say whether it has more messages:",
        "  each message that a SYNC_MASTER answered with SEND_OK is on a slave; others may not be",
        "  this slave last heard its master N s ago",
        "  groups continue at the offsets that this slave copied N s ago: no message comes after"
        " these offsets, so none comes again",
        "  `rmqha-admin demote` later sets aside the messages that only the old master has",
        f"{PATH}: brokerRole=SLAVE becomes brokerRole=SYNC_MASTER",
        f"{PATH}: brokerId=1 becomes brokerId=0",
        f"{two} is SYNC_MASTER of broker-a; its log ends at {end}",
        "Name servers send clients to it. On the old master's machine, this makes it a slave:",
        "  rmqha-admin demote --config ITS_FILE --restart COMMAND",
    ]
    written = [f"{PATH} is changed; as it was: {PATH}.bak", "running: again"]
    assert error.splitlines() == written
    pair.cluster.hosts["a"].restart()
    code, text, error = told(pair, "demote", "a")
    assert code == 0
    assert text.splitlines() == [
        f"broker-a at {one} does not run now, and becomes a slave of {two}",
        "Messages that only it has go into setaside/ of its store, and are not served",
        f"{PATH}: brokerRole=SYNC_MASTER becomes brokerRole=SLAVE",
        f"{PATH}: brokerId=0 becomes brokerId=1",
        "It had no message that the master lacks",
        f"{one} follows {two}; its log ends at {end}",
    ]
    assert error.splitlines() == written


def test_what_a_slave_lacks_of_a_master_that_answers_is_a_table(pair: Pair) -> None:
    pair.cluster.brokers["b"].journal.service.stop()
    pair.send("a", 3)
    pair.commit("a", 2)
    code, text, error = told(pair, "promote", "b", dry_run=True)
    assert code == 0
    one, two = pair.cluster.address("a"), pair.cluster.address("b")
    assert [" ".join(line.split()) for line in text.splitlines()] == [
        f"broker-a at {two} is SLAVE now, and becomes SYNC_MASTER",
        f"At this moment {two} lacks 3 messages that its master has",
        "topic queue group here there lacks",
        "TBW102 0 - 0 3 3",
        "TBW102 0 g 0 2 2",
        f"{PATH}: brokerRole=SLAVE becomes brokerRole=SYNC_MASTER",
        f"{PATH}: brokerId=1 becomes brokerId=0",
    ]
    assert error == f"warning: the old master {one} answers: stop it before you promote a slave\n"


def test_what_was_set_aside_is_named_with_its_place(pair: Pair) -> None:
    pair.send("a", 2)
    pair.cluster.run(2)
    pair.cluster.wait(pair.cluster.brokers.pop("b").stop())
    pair.send("a", 4)
    pair.crash("a")
    pair.add("b", BrokerRole.SLAVE, 1)
    assert pair.run("promote", "b")[0] == 0
    pair.send("b", 7)
    root = pair.last.store.store_path_root_dir
    disk = pair.cluster.hosts["a"].restart().disk
    older = {"time": 5, "messages": 3, "topics": {TOPIC: 3}}
    for name, about in (("torn", b"{"), ("older", json.dumps(older).encode())):
        disk.replace(f"{root}/setaside/{name}/about.json", about)
    code, text, error = told(pair, "demote", "a")
    assert code == 0, error
    (line,) = [line for line in text.splitlines() if "set aside in" in line]
    assert line.startswith(f"4 messages are set aside in {root}/setaside/")
    assert line.endswith(f" ({TOPIC}: 4)")
    assert "It had nothing" not in text
    assert f"{root}/setaside/torn is not readable, so its messages are not counted" in error
    assert "older" not in text + error
    # Typed once more, for example because the first attempt was interrupted.
    pair.cluster.run(2)
    code, text, _ = told(pair, "demote", "a")
    assert code == 0
    assert f"Folders of earlier times: {root}/setaside/" in text
    assert "no message that the master lacks" not in text


@pytest.mark.parametrize("how", [{"dry_run": True}, {"yes": False}])
def test_a_demotion_that_is_only_shown_or_refused_changes_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, how: dict[str, bool]
) -> None:
    pair.crash("a")
    assert pair.run("promote", "b")[0] == 0
    pair.cluster.hosts["a"].restart()
    before = pair.settings("a")
    pair.commands.clear()
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    code, report, _ = pair.run("demote", "a", **how)
    assert (code, report["done"]) == (0 if how.get("dry_run") else FAILED, False)
    assert [item["after"] for item in report["changes"]] == ["SLAVE", "1"]
    assert (pair.settings("a"), pair.commands) == (before, [])


def test_a_master_that_owes_messages_is_the_master_all_the_same(pair: Pair) -> None:
    pair.send("a", 3)
    store = pair.cluster.brokers["a"].store
    about = {"to": store.log.max_offset + 1000, "owed": True}
    path = f"{store.root}/setaside/damaged-x/about.json"
    pair.cluster.hosts["a"].disk.replace(path, json.dumps(about).encode())
    code, report, error = pair.run("promote", "a")
    assert (code, report["done"], report["warnings"]) == (0, True, []), error


def test_both_are_typed_with_the_file_of_the_broker(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each is verified for as long as it was told to wait; nobody restarts the broker here."""
    path = tmp_path / "broker.properties"
    typed = Typist(pair.cluster, monkeypatch)
    pair.crash("a")
    for name, line, role, text in (
        ("b", "promote", "SYNC_MASTER", "is SLAVE now. Restart the broker"),
        ("b", "promote --role ASYNC_MASTER", "ASYNC_MASTER", "is SLAVE now. Restart the broker"),
        (
            "a",
            "demote --id 7",
            None,
            "no other master of broker-a is known: promote its slave first",
        ),
    ):
        host = pair.cluster.hosts[name]
        if not host.is_running:
            host.restart()
        typed.host = host.seams
        own = f"brokerIP1={host.ip}\n".encode() + host.disk.read_bytes(PATH)
        path.write_bytes(own)
        host.disk.replace(str(path), own)
        assert typed(f"{line} -c {path} --wait 2").code == USAGE, "nobody is there to ask"
        began = pair.cluster.clock.seconds()
        told = typed(f"{line} -c {path} --wait 2 --yes", namesrv=pair.cluster.namesrv.address)
        assert (told.code, text in told.err, told.lines[-1]["done"]) == (FAILED, True, False)
        assert 2 <= pair.cluster.clock.seconds() - began < 6
        if role is not None:
            assert f"brokerRole={role}\n" in host.disk.read_bytes(str(path)).decode()
