"""Secrets are changed while everything runs: nobody is refused on the way, and nobody after it."""

from collections.abc import Iterator
from typing import Any

import pytest

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.remoting.signing import Credentials
from rmq_ha.base.wire.command import RemotingCommand
from tests.unit.server.broker.sim_broker import TOPIC, SimBroker
from tests.unit.server.broker.test_acl_broker import FILE, PATH, USER, Guarded
from tests.unit.server.broker.test_signatures import again, refusals, timed

NEW = Credentials("useruser", "newsecret")
OLD_LINE = "secretKey: usersecret"
BOTH = FILE.replace(OLD_LINE, "secretKey: newsecret\n  previousSecretKey: usersecret")
ONLY_NEW = FILE.replace("usersecret", "newsecret")


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    made = Guarded()
    made.sim.configuration.ours.acl_requires_signed_time = True
    made.sim.start()
    made.pass_time(1)
    yield made
    made.sim.stop()


def sends(made: Guarded, account: Credentials) -> int:
    """The code that a message of an account gets."""
    return again(made, timed(made, account).sign(made.sim.message()))


def step(made: Guarded, text: str) -> None:
    made.disk.replace(PATH, text.encode())
    made.pass_time(2)


def test_an_account_has_two_secrets_on_the_way(guarded: Guarded, logged: list[Any]) -> None:
    (control,) = guarded.sim.broker.access_controls
    assert (sends(guarded, USER), sends(guarded, NEW)) == (0, 1)
    step(guarded, BOTH)
    assert (sends(guarded, USER), sends(guarded, NEW)) == (0, 0)
    guarded.pass_time(1)
    assert control.previous_secrets == 1
    assert (sends(guarded, USER), control.previous_secrets) == (0, 2)
    step(guarded, ONLY_NEW)
    assert (sends(guarded, USER), sends(guarded, NEW)) == (1, 0)
    assert refusals(guarded) == {"signature": 2}
    still = [event for event in logged if "previousSecretKey still" in (event["log_format"] or "")]
    assert [(event["account"], event["silent"]) for event in still] == [("useruser", 0)]
    reminders = [event["notice"] for event in logged if "notice" in event]
    assert [text for text in reminders if "take it away when all clients" in text]
    assert not [text for text in reminders if "secret " in text.replace("secretKey", "")]


def test_a_request_of_the_previous_secret_comes_once_too(guarded: Guarded) -> None:
    step(guarded, BOTH)
    recorded = timed(guarded, USER).sign(guarded.sim.message())
    assert again(guarded, recorded) == 0
    assert again(guarded, recorded) == 1
    assert refusals(guarded) == {"replay": 1}


def test_mqadmins_change_of_a_secret_leaves_the_previous_one(guarded: Guarded) -> None:
    """With the key there first, `updateAclConfig -s` begins the rotation."""
    step(guarded, FILE.replace(OLD_LINE, f"{OLD_LINE}\n  previousSecretKey: usersecret"))
    request = {"accessKey": "useruser", "secretKey": "newsecret", "admin": "false"}
    assert again(guarded, timed(guarded).sign(RemotingCommand(50, request))) == 0
    assert (sends(guarded, USER), sends(guarded, NEW)) == (0, 0)
    assert "previousSecretKey: usersecret" in guarded.text()
    answer = guarded.sim.call(timed(guarded).sign(RemotingCommand(54, {})))
    assert b"newsecret" in (answer.body or b"")
    assert b"usersecret" not in (answer.body or b"")


def broker_with(secrets: bytes) -> SimBroker:
    sim = SimBroker()
    sim.host.disk.replace("/conf/secrets", secrets)
    sim.configuration.ours.ha_secret_file = "/conf/secrets"
    return sim


def test_secrets_between_brokers_are_read_again(logged: list[Any]) -> None:
    sim = broker_with(b"the old secret of it\n").start()
    secrets = sim.broker.journal.service.listener.secrets

    def later(data: bytes) -> tuple[bytes, ...]:
        sim.host.disk.replace("/conf/secrets", data)
        end = sim.world.clock.seconds() + 4
        sim.world.clock.run_while(lambda: sim.world.clock.seconds() < end, 5)
        return tuple(secrets.all)

    old, new = b"the old secret of it", b"the new secret of it"
    assert secrets.all == (old,)
    assert later(old + b"\n\n  " + new + b"\r\n") == (old, new)
    assert later(new + b"\n" + old) == (new, old)
    assert later(b"short\n" + old) == (new, old)
    (fault,) = [event for event in logged if "stays as it was" in (event["log_format"] or "")]
    assert fault["subject"] == "haSecretFile"
    assert str(fault["error"]) == "haSecretFile=/conf/secrets:1: needs at least 16 characters"
    assert later(new) == (new,)
    assert sim.send().code == 0
    assert sim.broker.topics.get(TOPIC) is not None
    sim.stop()


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"\n", "1 to 16 lines with a secret each, not 0"), (b"short", ":1: needs at least 16")],
)
def test_a_file_without_secrets_stops_the_start(data: bytes, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=f"haSecretFile=/conf/secrets.*{reason}"):
        broker_with(data).start()
    missing = SimBroker()
    missing.configuration.ours.ha_secret_file = "/conf/none"
    with pytest.raises(ConfigurationError, match="haSecretFile=/conf/none: "):
        missing.start()
