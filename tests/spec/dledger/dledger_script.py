"""
Conversations with one member of a DLedger group, as text: what it is told, and what it does then.

Told (the lines that a script consists of):

    member n1 term=2 vote=n0 entries=1,1,2 committed=1 leader=n0    who it is; terms of its entries
    set sync_before_ack=1             a setting of `DLedgerSettings`, before `member`
    at 6001                           milliseconds since its start; what is due until then happens
    > n0 HEART_BEAT leaderId=n0 term=2      a request of n0
    << n2 VOTE code=200 term=3        n2's answer to the oldest open VOTE, or `nothing`
    append 2                          its broker appends so many entries
    synced 3                          its ledger is on the disk up to entry 3

Done (the rest of a transcript):

    < n0 code=200 term=-1             its answer
    >> n2 VOTE leaderId=n1 term=3     its request
    persist term=3 vote=n1            what must be on the disk before the next line happens
    role LEADER term=3 leader=n1, committed 4, completed 4 200, sync
    ledger begin=0 end=2 committed=1 terms=1,1,2       after each change of it

Left out are: the group, ids of who sends and who gets, and fields with their default. An entry is
`index@term`; with `~` its body is another, with `+1` its pos.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec

from rmq_ha.base.config.dledger_settings import DLedgerSettings, parse_peers
from rmq_ha.base.store_format.dledger_values import Entry, TermVote
from rmq_ha.server.dledger import messages
from rmq_ha.server.dledger.actions import (
    AnswerRequest,
    CommitIndexMoved,
    Persist,
    PutsCompleted,
    RoleChanged,
    SendRequest,
    Sync,
)
from rmq_ha.server.dledger.codec import decode_body, encode_body
from rmq_ha.server.dledger.codes import DLedgerRequestCode, PushType, VoteResult
from rmq_ha.server.dledger.ledger import Ledger
from rmq_ha.server.dledger.node import Node
from rmq_ha.testing.host import World

GROUP = "RaftG"
PEERS = "n0-h0:1;n1-h1:1;n2-h2:1"
BODY_SIZE = 112
ENTRY_SIZE = 48 + BODY_SIZE
TOLD = ("member", "set", "at", ">", "<<", "append", "synced")
CODES = {code.name: code for code in DLedgerRequestCode}
READ: dict[str, Any] = {
    "type": PushType,
    "voteResult": VoteResult,
    "transfer": lambda text: text == "True",
    "status": lambda text: text == "True",
}
REQUESTS = {
    DLedgerRequestCode.METADATA: (messages.MetadataRequest, messages.MetadataResponse),
    DLedgerRequestCode.GET: (messages.GetEntriesRequest, messages.GetEntriesResponse),
    DLedgerRequestCode.VOTE: (messages.VoteRequest, messages.VoteResponse),
    DLedgerRequestCode.HEART_BEAT: (messages.HeartBeatRequest, messages.HeartBeatResponse),
    DLedgerRequestCode.PUSH: (messages.PushEntryRequest, messages.PushEntryResponse),
    DLedgerRequestCode.LEADERSHIP_TRANSFER: (
        messages.LeadershipTransferRequest,
        messages.LeadershipTransferResponse,
    ),
}


class Shortest(Random):
    """Every random pause is the shortest that there is."""

    def randrange(self, *_: Any) -> int:
        return 0


def body(index: int, term: int) -> bytes:
    """What an entry of a script holds."""
    return f"{index}@{term}".encode().ljust(BODY_SIZE, b".")


def write_entry(entry: Entry) -> str:
    text = f"{entry.index}@{entry.term}"
    if entry.body != body(entry.index, entry.term):
        text += "~"
    return text + ("+1" if entry.pos != entry.index * ENTRY_SIZE else "")


def read_entry(text: str) -> Entry:
    text, _, more = text.partition("+")
    index, _, term = text.rstrip("~").partition("@")
    content = body(int(index), int(term))
    if text.endswith("~"):
        content = content[::-1]
    return Entry(int(index), int(term), int(index) * ENTRY_SIZE + int(more or 0), content)


def write_message(message: Any, left_out: dict[str, str | None]) -> str:
    """Fields that are not what everybody expects, in the order in which JSON has them."""
    found = []
    fields = msgspec.structs.fields(message)
    for field in sorted(fields, key=lambda one: one.encode_name):
        name, value = field.encode_name, getattr(message, field.name)
        if name in left_out and value == left_out[name]:
            continue
        if name != "code" and value == field.default and not isinstance(message, Exception):
            continue
        if isinstance(value, Entry):
            value = write_entry(value)
        elif isinstance(value, tuple):
            value = ",".join(map(write_entry, value))
            if not value:
                continue
        elif isinstance(value, dict):
            value = ",".join(f"{key}:{item}" for key, item in sorted(value.items()))
        found.append(f"{name}={value}")
    return " ".join(found)


def read_message(kind: type[Any], words: list[str], **known: str) -> Any:
    """What the line says, beside what every message has."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {fields[name].name: value for name, value in known.items()}
    for word in words:
        name, _, text = word.partition("=")
        value: Any = text
        if name == "entry":
            value = read_entry(text)
        elif name == "batchEntry":
            value = tuple(map(read_entry, text.split(",")))
        elif name in READ:
            value = READ[name](text)
        elif text.lstrip("-").isdigit():
            value = int(text)
        values[fields[name].name] = value
    # There and back: what is said is what can be said on the wire.
    return decode_body(kind, encode_body(kind(**values)))


class Player:
    """One member, driven by the lines of a script; `lines` is the transcript."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._settings: dict[str, Any] = {}
        self._now = 0
        self._written = 0
        self._shown = ""
        self._open: dict[str, list[SendRequest]] = {}

    def play(self, script: str) -> str:
        """The whole transcript of a script, or of a transcript: what is done in it is left out."""
        for line in script.splitlines():
            words = line.split()
            if not words or line.startswith("#"):
                self.lines.append(line)
            elif words[0] in TOLD:
                getattr(self, "_" + {">": "request", "<<": "response"}.get(words[0], words[0]))(
                    line, *words[1:]
                )
        return "\n".join(self.lines) + "\n"

    def _set(self, line: str, *words: str) -> None:
        self.lines.append(line)
        for word in words:
            name, _, value = word.partition("=")
            self._settings[name] = int(value)

    def _member(self, line: str, name: str, *words: str) -> None:
        self.lines.append(line)
        given = dict(word.split("=") for word in words)
        self.name = name
        self.ledger = Ledger(World(1).add(name).seams.disk, f"/dledger-{name}", 1 << 20)
        self.ledger.load()
        for index, term in enumerate(filter(None, given.get("entries", "").split(","))):
            self.ledger.append(int(term), [body(index, int(term))])
        if "committed" in given:
            self.ledger.commit(int(given["committed"]))
        settings = DLedgerSettings(GROUP, name, parse_peers(PEERS), **self._settings)
        state = TermVote(int(given.get("term", 0)), given.get("vote"))
        self.node = Node(settings, self.ledger, state, Shortest(), 0)
        leader = given.get("leader")
        if leader is not None:
            beat = read_message(
                messages.HeartBeatRequest,
                [f"leaderId={leader}", f"term={self.node.term}"],
                group=GROUP,
                remoteId=name,
                localId=leader,
            )
            self.node.request(DLedgerRequestCode.HEART_BEAT, beat, leader, 0)
            self.node.outbox.clear()
        self._shown = self._ledger()
        self.lines.append(self._shown)

    def _at(self, line: str, until: str) -> None:
        self._run(int(until))
        self._now = int(until)
        self._write_time()

    def _run(self, until: int) -> None:
        self._flush()
        while self.node.next_wake <= until:
            self._now = max(self._now, self.node.next_wake)
            self.node.tick(self._now)
            self._flush()

    def _write_time(self) -> None:
        if self._now != self._written:
            self.lines.append(f"at {self._now}")
            self._written = self._now

    def _request(self, line: str, sender: str, what: str, *words: str) -> None:
        self._say(line)
        code = CODES[what]
        kind = REQUESTS[code][0]
        known = {"group": GROUP, "remoteId": self.name, "localId": sender}
        for word in words:
            known.pop(word.partition("=")[0], None)
        self.node.request(code, read_message(kind, list(words), **known), sender, self._now)
        self._run(self._now)

    def _response(self, line: str, peer: str, what: str, *words: str) -> None:
        self._say(line)
        send = next(one for one in self._open[peer] if one.code == CODES[what])
        self._open[peer].remove(send)
        kind = REQUESTS[DLedgerRequestCode(send.code)][1]
        answer = None if words == ("nothing",) else read_message(kind, list(words), group=GROUP)
        self.node.response(peer, send.call_id, answer, self._now)
        self._run(self._now)

    def _append(self, line: str, count: str) -> None:
        self._say(line)
        for _ in range(int(count)):
            index, term = self.ledger.end_index + 1, self.node.term
            self.ledger.append(term, [body(index, term)])
        self.node.appended(self.ledger.end_index, self._now)
        self._run(self._now)

    def _synced(self, line: str, index: str) -> None:
        self._say(line)
        self.node.synced(int(index), self._now)
        self._run(self._now)

    def _say(self, line: str) -> None:
        self._write_time()
        self.lines.append(line)

    def _flush(self) -> None:
        done = list(self._done())
        shown = self._ledger()
        if shown != self._shown:
            self._shown = shown
            done.append(shown)
        if done:
            self._write_time()
            self.lines += done

    def _done(self) -> Iterator[str]:
        actions = list(self.node.outbox)
        self.node.outbox.clear()
        for action in actions:
            if isinstance(action, SendRequest):
                self._open.setdefault(action.peer, []).append(action)
                left_out = {"group": GROUP, "remoteId": action.peer, "localId": self.name}
                text = write_message(action.message, {**left_out, "code": 200})  # type: ignore[dict-item]
                yield f">> {action.peer} {DLedgerRequestCode(action.code).name} {text}"
            elif isinstance(action, AnswerRequest):
                left_out = {"group": GROUP, "remoteId": self.name, "localId": action.token}
                yield f"< {action.token} {write_message(action.message, left_out)}"
            elif isinstance(action, Persist):
                yield f"persist term={action.state.term} vote={action.state.voted_for}"
            elif isinstance(action, RoleChanged):
                yield f"role {action.role.value} term={action.term} leader={action.leader_id}"
            elif isinstance(action, CommitIndexMoved):
                yield f"committed {action.index}"
            elif isinstance(action, PutsCompleted):
                yield f"completed {action.index} {action.code}"
            elif isinstance(action, Sync):
                yield "sync"

    def _ledger(self) -> str:
        ledger = self.ledger
        first = max(ledger.begin_index, 0)
        terms = [str(ledger.term_at(index)) for index in range(first, ledger.end_index + 1)]
        return (
            f"ledger begin={ledger.begin_index} end={ledger.end_index}"
            f" committed={ledger.committed_index} terms={','.join(terms) or 'none'}"
        )
