"""Requests that a Java broker 5.3.3 was asked, and its answers, beside ours. Spec: pop.md, 17.

Times are renamed. Each difference that is meant has a line in `DIFFERENT`, with its reason.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.model.properties import encode_properties
from rmq_ha.base.store_format.commitlog import decode_records
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from tests.unit.server.broker.pop_kit import PopBroker

FIXTURES = Path(__file__).parents[3] / "fixtures" / "pop"
POPS = (200050, 200051, 200052, 200053, 200054, 200055, 200151)
BESIDE = (RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
SETTINGS = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
)
Message = tuple[str, int, str, dict[str, str]]
LETTERS = "AB"

SENT: dict[str, list[Message]] = {
    "pop two queues, initMode 0 (min)": [
        ("PopT3", at % 2, f"m{at}", {"TAGS": LETTERS[at % 2], "KEYS": f"k{at}"}) for at in range(6)
    ],
    "orderly pop of 3, attempt A": [("PopFifo2", 0, f"f{at}", {}) for at in range(8)],
    "pop 3 of 5, 60 s": [("PopAdm", 0, f"a{at}", {}) for at in range(5)],
}
"""Messages that were sent before a request; the recordings do not have the sends."""

DIFFERENT: dict[tuple[str, int], dict[str, Any]] = {
    # An acknowledgement of what is not out is refused (hazard 12).
    ("pop-basic", 12): {"code": 208},
    ("pop-basic", 14): {"code": 208},
    # The offset is what was acknowledged, and not what was handed out (hazard 1).
    ("pop-basic", 24): {"offset": "0"},
    ("pop-basic", 25): {"offset": "1"},
    # Messages of a repeated attempt can be acknowledged by its first answer, too.
    ("pop-orderly", 6): {"offset": "1"},
    ("pop-orderly", 8): {"offset": "2"},
}
TIMES = ("popTime", "reviveQid")
PLACES = ("startOffsetInfo", "msgOffsetInfo", "orderCountInfo")


class Replay:
    """Asks our broker what was asked Java's, at the same distances of time."""

    def __init__(self) -> None:
        self.broker = PopBroker().start()
        self.names: dict[str, str] = {}
        self.recorded_now = 0

    def send(self, messages: list[Message]) -> None:
        for topic, queue_id, body, properties in messages:
            text = encode_properties(properties)
            now_ms = self.broker.host.now_ms()
            request = send_request("p", topic, queue_id, body.encode(), text, now_ms)
            assert self.broker.call(request).code == 0

    def ask(self, request: dict[str, Any]) -> RemotingCommand:
        fields = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in request["extFields"].items()
        }
        if int(fields.get("bornTime", "0")):
            born = int(fields["bornTime"])
            if self.recorded_now:
                self.broker.run(max(0, born - self.recorded_now) / 1000)
            self.recorded_now = max(self.recorded_now, born)
            now_ms = self.broker.client_host.now_ms()
            fields["bornTime"] = str(now_ms + born - self.recorded_now)
        if "extraInfo" in fields:
            items = fields["extraInfo"].split(" ")
            items[1] = self.names.get(items[1], items[1])
            fields["extraInfo"] = " ".join(items)
        body = request["body"]
        for recorded, ours in self.names.items():
            body = body.replace(recorded, ours)
        return self.broker.call(RemotingCommand(request["code"], fields, body.encode() or None))

    def note(self, theirs: dict[str, str], ours: dict[str, str]) -> None:
        """Remember our name of a lease."""
        if theirs.get("popTime", "0") != "0":
            self.names.setdefault(theirs["popTime"], ours.get("popTime", "0"))


def comparable(name: str, value: str) -> Any:
    return sorted(value.split(";")) if name in PLACES else value


def same(theirs: dict[str, Any], ours: RemotingCommand, but: dict[str, Any]) -> None:
    """Codes, names of fields, values without times, and messages."""
    assert ours.code == but.get("code", theirs["code"])
    if ours.code != theirs["code"]:
        return
    fields, found = theirs["extFields"] or {}, ours.ext or {}
    assert set(found) == set(fields)
    for name, value in fields.items():
        if name == "invisibleTime":
            assert abs(int(found[name]) - int(value)) < 100
        elif name not in TIMES:
            assert comparable(name, found[name]) == comparable(name, but.get(name, value)), name
    if "messages" in theirs:
        told = sorted(
            (item["queueId"], item["queueOffset"], item["body"]) for item in theirs["messages"]
        )
        records = decode_records(ours.body or b"")
        assert told == sorted(
            (item.queue_id, item.queue_offset, item.body.decode()) for item in records
        )


@pytest.mark.parametrize("name", ["pop-basic", "pop-orderly", "pop-admin"])
def test_the_same_questions_have_the_same_answers(name: str) -> None:
    replay = Replay()
    asked = 0
    for number, item in enumerate(json.loads((FIXTURES / f"{name}.json").read_text())):
        request, response, what = item["request"], item["response"], item["name"]
        if what.startswith("pop after invisible time"):
            break  # Java's retries come seconds later; test_processor_pop has ours
        if request["code"] not in (*POPS, *BESIDE, *SETTINGS) or "PopLong" in str(request):
            continue
        if what == "polling info while one waits":
            continue
        replay.send(SENT.get(what, []))
        ours = replay.ask(request)
        if request["code"] in SETTINGS:
            assert ours.code == 0
            continue
        but = DIFFERENT.get((name, number), {})
        if what == "ack of another group's message":
            but = {"code": 208}
        try:
            same(response, ours, but)
        except AssertionError as error:
            raise AssertionError(f"{name} {number}, {what}: {error}; ours: {ours}") from None
        replay.note(response["extFields"] or {}, ours.ext or {})
        asked += 1
    assert asked > 12
    replay.broker.stop()
