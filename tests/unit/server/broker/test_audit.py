"""The audit log: one line says who did what to topics, groups, offsets, settings and accounts."""

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import fail
from twisted.internet.task import Clock
from twisted.logger import formatEvent, globalLogPublisher

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.security import PLAIN, Security
from rmq_ha.base.remoting.audit import NAMESPACE, AuditLog
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.ops.app.log import LINES, LogBudget
from rmq_ha.server.broker.audit_acts import acts
from rmq_ha.server.namesrv.namesrv import ACTS
from tests.unit.server.broker.guarded import ADMIN, OWNER, WEAK, Guarded, every_request


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    """What was written under the audit log's namespace."""
    events: list[Any] = []

    def observe(event: Any) -> None:
        if event.get("log_namespace") == NAMESPACE:
            events.append(event)

    globalLogPublisher.addObserver(observe)
    yield events
    globalLogPublisher.removeObserver(observe)


@pytest.fixture
def broker() -> Iterator[Guarded]:
    made = Guarded().start()
    yield made
    made.stop()


def told(event: Any) -> tuple[Any, ...]:
    return tuple(event[name] for name in ("account", "verb", "kind", "item"))


def test_a_line_is_words(broker: Guarded, lines: list[Any]) -> None:
    """No Python stands in it; programs find the values by name."""
    broker.account = ADMIN
    new = dict(every_request(broker)[17].ext or {}) | {"topic": "New"}
    broker.call(RemotingCommand(17, new))
    text = formatEvent(lines[-1])
    assert " created topic 'New' (readQueueNums=" in text
    assert "{" not in text
    assert lines[-1]["details"]["perm"] == new["perm"]


def test_who_did_what_to_whom(broker: Guarded, lines: list[Any]) -> None:
    requests = every_request(broker)
    broker.account = ADMIN
    new = dict(requests[17].ext or {}) | {"topic": "New"}
    for request in (
        RemotingCommand(17, new),
        RemotingCommand(17, dict(new)),
        RemotingCommand(215, {"topic": "New"}),
        RemotingCommand(200, {}, fastjson.encode({"groupName": "newgroup"})),
        requests[200],
        RemotingCommand(207, {"groupName": "newgroup"}),
        RemotingCommand(314, {"srcGroup": "good", "destGroup": "other", "offline": "true"}),
        RemotingCommand(25, {}, b"regionId=changed\n"),
        requests[50],
        RemotingCommand(51, {"accessKey": "newaccount"}),
        RemotingCommand(53, {"globalWhiteAddrs": "10.9.9.9"}),
        requests[316],
        requests[3001],
        requests[3002],
        requests[3006],
        RemotingCommand(3008, {"subject": "User:weakweak", "resource": "Topic:Secret"}),
        requests[3003],
    ):
        assert broker.call(request).code == 0
    assert [told(event) for event in lines] == [
        ("adminadmin", "created", "topic", "New"),
        ("adminadmin", "changed", "topic", "New"),
        ("adminadmin", "deleted", "topic", "New"),
        ("adminadmin", "created", "group", "newgroup"),
        ("adminadmin", "changed", "group", "good"),
        ("adminadmin", "deleted", "group", "newgroup"),
        ("adminadmin", "cloned", "offsets to group", "other"),
        ("adminadmin", "changed", "configuration", "regionId"),
        ("adminadmin", "set", "account", "newaccount"),
        ("adminadmin", "deleted", "account", "newaccount"),
        ("adminadmin", "set", "white addresses", "10.9.9.9"),
        ("adminadmin", "cleaned", "queues", "of unused topics"),
        ("adminadmin", "created", "account", "newuser"),
        ("adminadmin", "changed", "account", "weakweak"),
        ("adminadmin", "set", "permissions of account", "User:weakweak"),
        ("adminadmin", "deleted", "permissions of account", "User:weakweak"),
        ("adminadmin", "deleted", "account", "weakweak"),
    ]
    assert {event["peer"].rpartition(":")[0] for event in lines} == {broker.client_host.ip}
    assert lines[0]["details"] == {"readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    assert lines[7]["details"] == {"regionId": "changed"}
    assert lines[8]["details"] == {"admin": "true", "secretKey": "***"}
    assert lines[14]["details"] == {"rules": "Allow Sub Topic:Secret"}
    assert lines[15]["details"] == {"resource": "Topic:Secret"}
    assert "newsecret" not in repr(lines)


def test_a_reset_names_the_account_that_asked(broker: Guarded, lines: list[Any]) -> None:
    for queue_id in range(4):
        broker.broker.consumer_offsets.commit("good", "Secret", queue_id, 1)
    ext = {"group": "good", "topic": "Secret", "timestamp": "0", "isForce": "true"}
    assert broker.by(OWNER, RemotingCommand(222, ext)).code == 0
    (line,) = lines
    assert told(line) == ("ownerowner", "reset", "offsets of group", "good")
    assert line["details"] == {"topic": "Secret", "timestamp": "0", "isForce": "true"}


def test_without_access_control_the_address_says_who(lines: list[Any]) -> None:
    from tests.unit.server.broker.sim_broker import SimBroker

    sim = SimBroker().start()
    assert sim.call(RemotingCommand(RequestCode.CLEAN_UNUSED_TOPIC, {"AccessKey": "x"})).code == 0
    _, line = lines  # the first one is the start's
    assert line["account"] == "-"  # nobody has checked that it is x
    sim.stop()


def test_what_is_refused_is_told_once_in_ten_seconds(broker: Guarded, lines: list[Any]) -> None:
    """What access control refuses has its own line; this is what a handler refuses."""
    broker.account = ADMIN
    for _ in range(20):
        assert broker.call(RemotingCommand(215, {"topic": "TBW102"})).code == 1
    (line,) = lines
    assert line["log_level"].name == "warn"
    assert "conflict with system topic" in line["reason"]
    broker.run(11)
    broker.call(RemotingCommand(200, {}, b"{"))
    assert lines[-1]["silent"] == 19
    assert lines[-1]["verb"] == "asked for"
    assert broker.by(WEAK, RemotingCommand(215, {"topic": "Secret"})).code == 1
    assert len(lines) == 2


def test_every_code_that_changes_something_is_there() -> None:
    """Those that the table of permissions gives to admins and that are no questions."""
    changing = {17, 25, 50, 51, 53, 200, 207, 215, 222, 306, 309, 314, 316, 323, 329, 401}
    changing |= {3001, 3002, 3003, 3006, 3007, 3008}
    changing.add(RequestCode.HAND_OVER_PAIR)
    assert set(map(int, acts({}.get, {}.get))) == changing
    assert set(map(int, ACTS)) == {100, 102, 205, 216, 318, 327}


class Peer:
    """As much of a channel as a line tells."""

    def __init__(self, host: str = "1.2.3.4", *names: str) -> None:
        self.host = host
        self.remote_text = f"{host}:5"
        self.security = Security(is_tls=True, names=names) if names else PLAIN


def ask(code: int, handler: Any, ext: Any = None, body: bytes = b"", *, peer: Any = None) -> Any:
    """What a handler of this code answers with the log around it."""
    audited = AuditLog(Clock(), ACTS).wrap(code, handler)
    return audited(peer or Peer(), RemotingCommand(code, ext or {}, body))


def agrees(_: Any, request: RemotingCommand) -> RemotingCommand:
    return request.response()


def test_a_value_is_cut_and_a_secret_hidden(lines: list[Any]) -> None:
    peer: Any = Peer("1.2.3.4", "ops.example", "10.0.0.1")
    ask(100, agrees, {"namespace": "n", "key": "k", "value": "v" * 10**6}, peer=peer)
    assert len(lines[0]["details"]["value"]) == 203
    assert lines[0]["certificate"] == "ops.example, 10.0.0.1"
    assert lines[0]["who"] == "ops.example, 10.0.0.1 at 1.2.3.4:5"
    ask(318, agrees, None, b"someSecretKey=hidden\nother=x\\u000ay")
    assert lines[1]["details"] == {"someSecretKey": "***", "other": "x\ny"}


def test_no_field_of_a_line_is_longer_than_promised(lines: list[Any]) -> None:
    """Whoever may ask, or show a certificate, does not fill the disk with one name."""
    peer: Any = Peer("1.2.3.4", "c" * 201)
    ask(100, agrees, {"namespace": "n" * 200, "key": "k" * 201, "value": "v" * 201}, peer=peer)
    ask(318, agrees, None, b"k" * 201 + b"=1")
    header, body = lines
    assert (header["item"], header["certificate"]) == ("k" * 200, "c" * 200)
    assert header["details"] == {"namespace": "n" * 200, "value": "v" * 200 + "..."}
    assert body["item"] == "k" * 200


def test_a_code_that_changes_nothing_costs_nothing(lines: list[Any]) -> None:
    assert AuditLog(Clock(), ACTS).wrap(10, agrees) is agrees


def test_a_handler_that_refuses_later_or_at_once_is_told_and_heard(lines: list[Any]) -> None:
    """The client gets the handler's own code and words, and the log has them."""
    refused, broken = RequestRejected(17, "no topic"), ValueError("oops")

    def rejects(channel: Any, request: RemotingCommand) -> Any:
        raise refused

    with pytest.raises(RequestRejected) as caught:
        ask(102, rejects)
    assert caught.value is refused
    for error in (refused, broken):
        caught_later: list[Any] = []
        ask(102, lambda *_, why=error: fail(why)).addErrback(caught_later.append)
        assert caught_later[0].value is error
    said = [(event["answer"], event["reason"]) for event in lines]
    assert said == [(17, "no topic"), (17, "no topic"), (1, "oops")]


def test_one_peers_lines_leave_out_no_others() -> None:
    """The log's budget is by kind of line: one's flood must not hide what others do."""
    kept: list[Any] = []
    budget = LogBudget(kept.append)
    globalLogPublisher.addObserver(budget)
    handler = AuditLog(Clock(), ACTS).wrap(102, agrees)
    one: Any = Peer("10.0.0.1")
    other: Any = Peer("10.0.0.2")
    try:
        for _ in range(LINES + 10):
            handler(one, RemotingCommand(102, {"namespace": "n", "key": "k"}))
        handler(other, RemotingCommand(102, {"namespace": "n", "key": "precious"}))
    finally:
        globalLogPublisher.removeObserver(budget)
    items = [event["item"] for event in kept if event.get("log_namespace") == NAMESPACE]
    assert items == [*["k"] * LINES, "precious"]


def test_a_broker_says_as_what_it_was_started(lines: list[Any]) -> None:
    """So an operator promotes the slave of a pair; nobody asked over a port."""
    broker = Guarded().start()
    (started,) = [event for event in lines if event["verb"] == "started as"]
    assert told(started) == ("-", "started as", "ASYNC_MASTER", "broker-a")
    assert started["details"] == {"brokerId": 0}
    broker.stop()
