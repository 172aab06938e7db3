"""What SQL92 and tag subscriptions let pass, and how they are refused: the same as of Java."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.model.properties import encode_properties
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.store_format.commitlog import decode_records
from rmq_ha.base.store_format.consumequeue_ext import decode_extension
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.members import to_members
from rmq_ha.client.lookup.requests import pull_request, send_request
from rmq_ha.server.broker.tables.consumer_filters import ConsumerFilterManager
from rmq_ha.testing.disk import SimDisk
from tests.interop.rig import Rig, Server
from tests.interop.selectors_gen import Generator, messages
from tests.interop.wire import Wire

SEED = 20
EXPRESSIONS = 420
TOPIC, TAGS_TOPIC, GROUP = "Filtered", "Tagged", "g-sql"
MESSAGES = messages(Random(SEED), 60)
SAVED_BORN = 1_700_000_000_000
SAVED = "a > 1 AND b IS NOT NULL"
ALL = {
    "maxTransferCountOnMessageInMemory": 100,
    "waitTimeMillsInPullQueue": 20000,
    "enableConsumeQueueExt": "true",
    "mappedFileSizeConsumeQueueExt": 4096,
    "enableCalcFilterBitMap": "true",
}
TAGGED = ["TagA", "TagB", "Aa", "BB", "", "x y", "a||b"]


def generated() -> list[str]:
    """Expressions, no two the same."""
    random = Random(SEED)
    messages(random, 60)
    generator = Generator(random)
    return list(dict.fromkeys(generator.expression() for _ in range(EXPRESSIONS)))


def saved_filters() -> bytes:
    """A `consumerFilter.json` as we write it: one group lives, one died long ago."""
    table = ConsumerFilterManager(
        SimDisk(Random(1), lambda: 0),
        None,
        "",
        BrokerConfig(),
        lambda: SAVED_BORN,  # type: ignore[arg-type]
    )
    wanted = SubscriptionData(TOPIC, SAVED, sub_version=7, expression_type="SQL92")
    table.register("g-saved", [wanted])
    table.register("g-old", [wanted])
    table.unregister("g-old")
    return table.encode()


@pytest.fixture(scope="module")
def both(shared_rig: Rig) -> Iterator[Any]:
    """Ours and Java's, with the same messages and the same filters from before."""
    namesrv = shared_rig.namesrv()
    for name in ("ours", "theirs"):
        config = shared_rig.directory / name / "store" / "config"
        config.mkdir(parents=True)
        (config / "consumerFilter.json").write_bytes(saved_filters())
    ours = shared_rig.broker("master-async.conf", "ours", namesrv=namesrv, **ALL)
    theirs = shared_rig.broker("master-async.conf", "theirs", java=True, **ALL)
    sides = SimpleNamespace(
        ours=Wire(ours.address, 30), theirs=Wire(theirs.address, 30),
        rig=shared_rig, namesrv=namesrv, servers=(ours, theirs),
    )  # fmt: skip
    sides.wires = (sides.ours, sides.theirs)
    for wire in sides.wires:
        for topic in (TOPIC, TAGS_TOPIC, "Woken"):
            wire.create_topic(topic, 1)
        send(wire, TOPIC, MESSAGES)
        send(wire, TAGS_TOPIC, [{"TAGS": tag} if tag else {} for tag in TAGGED])
    yield sides
    for wire in sides.wires:
        wire.__exit__()


def reopen(sides: Any, *names: str) -> None:
    """Stop both, and start ours and Java's on these stores."""
    for wire in sides.wires:
        wire.__exit__()
    for server in sides.servers:
        server.process.terminate()
    for server in sides.servers:
        assert server.stop() in (0, 143)
    sides.servers = tuple(
        sides.rig.broker("master-async.conf", name, java=java, **ALL)
        for name, java in zip(names, (False, True), strict=True)
    )
    sides.wires = sides.ours, sides.theirs = [Wire(it.address, 30) for it in sides.servers]


def send(wire: Wire, topic: str, wanted: list[dict[str, str]]) -> None:
    """Messages into queue 0, in this order, and wait until they can be pulled."""
    before = wire.max_offset(topic, 0)
    for properties in wanted:
        text = encode_properties(properties)
        (answer,) = wire.exchange([send_request("p", topic, 0, b"x", text, 1)])
        assert answer.code == 0, answer
    deadline = time.monotonic() + 30
    while wire.max_offset(topic, 0) < before + len(wanted):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def pull(expression: str | None, kind: str | None, **changes: Any) -> RemotingCommand:
    """A pull of everything, with the subscription in it unless `sysFlag` says otherwise."""
    request = pull_request("g-pull", TOPIC, 0, 0, 100)
    ext = {**(request.ext or {}), "subscription": expression, "expressionType": kind, **changes}
    request.ext = {name: str(value) for name, value in ext.items() if value is not None}
    return request


def check(expression: str | None, kind: str | None) -> RemotingCommand:
    """The question whether a subscription is fine."""
    subscription = to_members(SubscriptionData(TOPIC, "", expression_type=kind))
    subscription["subString"] = expression
    body = {"clientId": "c", "group": "g", "subscriptionData": subscription}
    return RemotingCommand(RequestCode.CHECK_CLIENT_CONFIG, None, fastjson.encode(body))


def seen(answer: RemotingCommand) -> tuple[int, str | None, list[int]]:
    """What a pull found: code, next offset and queue offsets."""
    offsets = [record.queue_offset for record in decode_records(answer.body or b"")]
    return answer.code, (answer.ext or {}).get("nextBeginOffset"), offsets


def answers(wire: Wire, requests: list[RemotingCommand]) -> list[RemotingCommand]:
    """Asked in portions, so that neither side gives up waiting."""
    found = []
    for start in range(0, len(requests), 40):
        found += wire.exchange(requests[start : start + 40])
    return found


def heartbeat(group: str, version: int, *wanted: tuple[str, str, str]) -> RemotingCommand:
    """One consumer with these topics, expressions and types."""
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "unitMode": False,
        "subscriptionDataSet": [
            SubscriptionData(topic, expression, sub_version=version, expression_type=kind)
            for topic, expression, kind in wanted
        ],
    }  # fmt: skip
    body = {"clientID": "c1", "consumerDataSet": [consumer], "producerDataSet": []}
    return RemotingCommand(RequestCode.HEART_BEAT, None, fastjson.encode(body))


def leave(group: str) -> RemotingCommand:
    ext = {"clientID": "c1", "consumerGroup": group}
    return RemotingCommand(RequestCode.UNREGISTER_CLIENT, ext)


def of_group(group: str, version: int, topic: str = TOPIC) -> RemotingCommand:
    """A pull by the heartbeat's subscription."""
    return pull(None, None, consumerGroup=group, topic=topic, sysFlag=0, subVersion=version)


def configure(wire: Wire, key: str, value: str) -> None:
    wire.call(RequestCode.UPDATE_BROKER_CONFIG, f"{key}={value}\n".encode())


def pulled(wire: Wire, expressions: list[str]) -> list[Any]:
    return [seen(answer) for answer in answers(wire, [pull(e, "SQL92") for e in expressions])]


def test_expressions(both: Any) -> None:
    """Which compile, and which messages each of them lets pass."""
    expressions = generated()
    assert len(expressions) >= 300
    pulls = [pulled(wire, expressions) for wire in both.wires]
    for at, (ours, theirs) in enumerate(zip(*pulls, strict=True)):
        if ours != theirs:  # ours gives the turn back when the machine holds it up
            pulls[0][at] = pulled(both.ours, [expressions[at]])[0]
    checks = [
        [answer.code for answer in answers(wire, [check(e, "SQL92") for e in expressions])]
        for wire in both.wires
    ]
    different = [
        (expression, *results)
        for expression, *results in zip(expressions, *pulls, *checks, strict=True)
        if results[0] != results[1] or results[2] != results[3]
    ]
    assert different == []
    kinds = {
        (code, valid, bool(offsets))
        for (code, _, offsets), valid in zip(pulls[0], checks[0], strict=True)
    }
    assert kinds == {(0, 0, True), (20, 0, False), (0, 23, True)}
    assert 50 < checks[0].count(23) < 200
    assert len({tuple(offsets) for _, _, offsets in pulls[0]}) > 60


@pytest.mark.parametrize("kind", [None, "", "TAG", "SQL92", "tag", "sql92", "FOO"])
def test_types_and_tags(both: Any, kind: str | None) -> None:
    """Tags in all forms, as every type."""
    expressions = [
        None, "", "*", "TagA", "TagA || TagB", " TagA||TagB ", "TagA||", "||TagA", "||", "||||",
        "|||", " || ", "Aa", "TagA | TagB", "taga", "x y", "x y || TagB", "a||b", "\x01TagA\t",
        "**", "* || TagA", "\u00a0TagA", "TRUE",
    ]  # fmt: skip
    requests = [pull(e, kind, topic=TAGS_TOPIC) for e in expressions]
    ours, theirs = ([seen(a) for a in answers(wire, requests)] for wire in both.wires)
    assert dict(zip(expressions, ours, strict=True)) == dict(zip(expressions, theirs, strict=True))
    ours, theirs = (
        [a.code for a in answers(wire, [check(e, kind) for e in expressions])]
        for wire in both.wires
    )
    assert ours == theirs


def conversation(wire: Wire) -> list[Any]:
    """Codes 24, 25, 27 and 28, and what changes them."""
    told: list[Any] = []

    def ask(*requests: RemotingCommand) -> None:
        for request in requests:
            (answer,) = wire.exchange([request])
            told.append((request.code, *seen(answer)))

    ask(of_group(GROUP, 1), heartbeat(GROUP, 5, (TOPIC, "a > 1", "SQL92")))
    ask(of_group(GROUP, 5), of_group(GROUP, 6), of_group(GROUP, 4), of_group(GROUP, 5, TAGS_TOPIC))
    # An older expression counts for nothing, a newer one at once; a wrong one takes the old away.
    ask(heartbeat(GROUP, 4, (TOPIC, "a > 100", "SQL92")), of_group(GROUP, 5))
    ask(heartbeat(GROUP, 6, (TOPIC, "b = 'x'", "SQL92")), of_group(GROUP, 6))
    ask(heartbeat(GROUP, 7, (TOPIC, "b = ;", "SQL92")), of_group(GROUP, 7))
    ask(heartbeat(GROUP, 8, (TOPIC, "b IS NULL", "SQL92")), of_group(GROUP, 8))
    # From SQL92 to tags and back, with the same expression and an old one.
    ask(heartbeat(GROUP, 9, (TOPIC, "*", "TAG")), of_group(GROUP, 9))
    ask(heartbeat(GROUP, 10, (TOPIC, "b IS NULL", "SQL92")), of_group(GROUP, 10))
    ask(heartbeat(GROUP, 11, (TOPIC, "b IS NULL", "FOO")), of_group(GROUP, 11))
    ask(heartbeat(GROUP, 12, (TOPIC, "", "SQL92")), of_group(GROUP, 12))
    ask(heartbeat(GROUP, 13, (TAGS_TOPIC, "TAGS = 'TagA'", "SQL92")), of_group(GROUP, 13))
    ask(of_group(GROUP, 13, TAGS_TOPIC), leave(GROUP), of_group(GROUP, 13, TAGS_TOPIC))
    # Back with less than it had: the subscription is older than the filter that was kept.
    ask(heartbeat(GROUP, 1, (TAGS_TOPIC, "TAGS = 'TagB'", "SQL92")))
    ask(of_group(GROUP, 1, TAGS_TOPIC), of_group(GROUP, 13, TAGS_TOPIC))
    ask(heartbeat(GROUP, 14, (TAGS_TOPIC, "TAGS = 'TagB'", "SQL92")))
    ask(of_group(GROUP, 14, TAGS_TOPIC), leave(GROUP))
    # A filter from a file, with the version it had.
    ask(heartbeat("g-saved", 7, (TOPIC, SAVED, "SQL92")), of_group("g-saved", 7))
    ask(of_group("g-saved", 8))
    return told


def test_subscriptions_of_groups(both: Any) -> None:
    ours, theirs = (conversation(wire) for wire in both.wires)
    assert ours == theirs
    assert {code for _, code, *_ in ours} >= {0, 20, 24, 25, 27}


def test_filter_data_not_latest(both: Any) -> None:
    """28: the subscription is newer than the filter, as its new expression is empty."""
    told = []
    for wire in both.wires:
        wire.exchange([heartbeat("g-late", 5, (TOPIC, "a > 1", "SQL92"))])
        wire.exchange([heartbeat("g-late", 9, (TOPIC, "", "SQL92"))])
        found = wire.exchange([of_group("g-late", 9), of_group("g-late", 5)])
        told.append([seen(answer) for answer in found])
        wire.exchange([leave("g-late")])
    assert told[0] == told[1]
    assert [code for code, *_ in told[0]] == [28, 0]


def test_without_property_filter(both: Any) -> None:
    told = []
    for wire in both.wires:
        wire.exchange([heartbeat("g-off", 5, (TOPIC, "a > 1", "SQL92"))])
        configure(wire, "enablePropertyFilter", "false")
        requests = [
            check("a > 1", "SQL92"), check("*", "TAG"), check("a", "FOO"), pull("a > 1", "SQL92"),
            pull("a ;", "SQL92"), pull("", "SQL92"), pull("*", "TAG"), of_group("g-off", 5),
        ]  # fmt: skip
        told.append([(answer.code, answer.remark) for answer in wire.exchange(requests)])
        configure(wire, "enablePropertyFilter", "true")
        wire.exchange([leave("g-off")])
    assert told[0] == told[1]
    assert [code for code, _ in told[0]] == [1, 0, 1, 1, 1, 23, 0, 1]


def test_retry_topics(both: Any) -> None:
    """With `filterSupportRetry` a retry is filtered by what the group wants of its first topic."""
    group, retry = "g-retry", "%RETRY%g-retry"
    told = []
    for wire in both.wires:
        wanted = [(TOPIC, "a > 1", "SQL92"), (retry, "*", "TAG")]
        wire.exchange([heartbeat(group, 5, *wanted)])
        send(wire, retry, [{**item, "RETRY_TOPIC": TOPIC} for item in MESSAGES[:20]])
        send(
            wire,
            retry,
            [{"a": "1", "RETRY_TOPIC": "Other"}, {"a": "2", "TAGS": "T", "RETRY_TOPIC": TOPIC}],
        )
        requests = [
            of_group(group, 5, retry), pull("*", "TAG", topic=retry), pull("T", "TAG", topic=retry),
            pull("b IS NULL", "SQL92", topic=retry), of_group(group, 5), pull("a = 5", "SQL92"),
        ]  # fmt: skip
        found = [seen(answer) for answer in wire.exchange(requests)]
        configure(wire, "filterSupportRetry", "true")
        found += [seen(answer) for answer in wire.exchange(requests)]
        configure(wire, "filterSupportRetry", "false")
        wire.exchange([leave(group)])
        told.append(found)
    assert told[0] == told[1]
    assert told[0][0] != told[0][6]


def woken(server: Server, wire: Wire) -> Any:
    """Hold a pull; what it does not want leaves it alone, what it wants wakes it."""
    start = wire.max_offset("Woken", 0)
    request = pull(
        "a > 5", "SQL92", topic="Woken", queueOffset=start, sysFlag=6, suspendTimeoutMillis=15000
    )  # fmt: skip
    results: list[Any] = []

    def hold(other: Wire) -> None:
        (answer,) = other.exchange([request])
        results.append((time.monotonic(), seen(answer)))

    with Wire(server.address, 30) as other:
        holder = threading.Thread(target=hold, args=(other,), daemon=True)
        holder.start()
        time.sleep(0.5)
        send(wire, "Woken", [{"a": "1"}, {"a": "x"}, {"b": "9"}])
        time.sleep(0.5)
        was_left_alone = not results
        sent = time.monotonic()
        send(wire, "Woken", [{"a": "6"}])
        holder.join(20)
    at, answer = results[0]
    return was_left_alone, at - sent < 3, answer  # it would look by itself after 5 s


def test_held_pulls(both: Any) -> None:
    told: list[Any] = []
    for server, wire in zip(both.servers, both.wires, strict=True):
        wire.exchange([pull("*", "TAG", topic="Woken")])
        send(wire, "Woken", [{"a": "0"}])
        seen_twice = [woken(server, wire), woken(server, wire)]
        # Every 5 s either broker looks by itself and answers a pull that it passed over what is not
        # wanted: that may fall into one of two tries, which take a second each, but not into both.
        told.append([outcome for outcome in seen_twice if outcome[2][0] != 20])
    first, second = (True, True, (0, "5", [4])), (True, True, (0, "9", [8]))
    for outcomes in told:
        assert outcomes in ([first, second], [first], [second])


def test_java_push_consumer(both: Any) -> None:
    """The stock client: CHECK_CLIENT_CONFIG, heartbeat, held pulls."""
    send(both.ours, TAGS_TOPIC, [{"TAGS": "S", "price": str(price)} for price in range(1, 31)])
    lines = both.rig.peer(
        "consume", "--namesrv", both.namesrv, "--topic", TAGS_TOPIC, "--group", "g-java", "--sql",
        "TAGS = 'S' AND price BETWEEN 10 AND 20", "--from", "first", "--count", 11, "--linger", 1,
    )  # fmt: skip
    assert lines[-1]["received"] == 11


def test_saved_filters(both: Any) -> None:
    """Both have read the same file, and write the same one."""

    def saved(server: Server) -> Any:
        path = server.store / "config" / "consumerFilter.json"
        value = fastjson.parse(path.read_bytes())
        groups = value["filterDataByTopic"].get(TOPIC, {}).get("groupFilterData", {})
        return {name: item for name, item in groups.items() if name in ("g-saved", "g-old")}

    def is_new(server: Server) -> bool:
        groups = saved(server)
        return list(groups) == ["g-saved"] and not groups["g-saved"]["dead"]

    for server in both.servers:
        both.rig.until(lambda it=server: is_new(it), 25, "a new filter file", server)
    ours, theirs = map(saved, both.servers)
    assert ours == theirs
    assert ours["g-saved"]["bornTime"] == SAVED_BORN


def extensions(server: Server, topic: str) -> list[tuple[int, bytes | None]]:
    """Tag codes and bit maps of queue 0."""
    found = []
    for path in sorted((server.store / "consumequeue_ext" / topic / "0").iterdir()):
        data, at = path.read_bytes(), 0
        while (unit := decode_extension(data, at)) is not None:
            found.append((unit[0].tags_code, unit[0].bit_map))
            at += unit[1]
    return found


def test_stores_that_change_hands(both: Any) -> None:
    """Each reads the other's extension files: store times, tag codes and bit maps."""
    group, topic = "g-swap", "Swapped"
    wanted = (topic, "a > 1 OR b = 'x'", "SQL92")

    def look(wire: Wire) -> list[Any]:
        requests = [
            heartbeat(group, 5, wanted), of_group(group, 5, topic),
            pull("a IS NULL", "SQL92", topic=topic), pull("TagA || BB", "TAG", topic=TAGS_TOPIC),
            pull("*", "TAG", topic=TAGS_TOPIC, queueOffset=1), pull("A", "TAG"),
        ]  # fmt: skip
        return [seen(answer) for request in requests for answer in wire.exchange([request])]

    for wire in both.wires:
        wire.create_topic(topic, 1)
        wire.exchange([heartbeat(group, 5, wanted)])
        send(wire, topic, MESSAGES)
    before = [look(wire) for wire in both.wires]
    # The push consumer's messages went to ours only.
    assert before[0][:3] == before[1][:3]
    ours, theirs = (extensions(server, topic) for server in both.servers)
    assert ours == theirs
    assert len(ours) == len(MESSAGES)
    assert len({bit_map for _, bit_map in ours}) == 2
    reopen(both, "theirs", "ours")
    after = [look(wire) for wire in both.wires]
    assert after == before[::-1]
    for wire in both.wires:
        send(wire, topic, MESSAGES[30:50])
    ours, theirs = (look(wire)[1:3] for wire in both.wires)
    assert ours == theirs
    assert len(ours[0][2]) > len(after[0][1][2])
