"""Runs one DLedger node by a script of requests, and collects its actions."""

from random import Random
from typing import Any

from rmq_ha.base.config.dledger_settings import DLedgerSettings
from rmq_ha.base.store_format.dledger_values import Entry, MemberRole, TermVote
from rmq_ha.server.dledger.actions import (
    Action,
    AnswerRequest,
    CommitIndexMoved,
    Persist,
    PutsCompleted,
    RoleChanged,
    SendRequest,
)
from rmq_ha.server.dledger.codes import DLedgerRequestCode, PushType
from rmq_ha.server.dledger.messages import (
    GroupMessage,
    HeartBeatRequest,
    HeartBeatResponse,
    PushEntryRequest,
    PushEntryResponse,
    VoteRequest,
    VoteResponse,
)
from rmq_ha.server.dledger.node import Node
from tests.sim_kit.raft_ledger import MemoryLedger

GROUP = "RaftG"


class Script:
    """
    A node (`n1` by default) of a group whose other members a test plays.

    :param entries: terms of the entries that its ledger starts with.
    :param changes: changes of the node's settings.
    :ivar done: the actions of the node since they were last taken.
    """

    def __init__(
        self,
        term: int = 0,
        *,
        voted_for: str | None = None,
        entries: tuple[int, ...] = (),
        nodes: int = 3,
        self_id: str = "n1",
        **changes: Any,
    ) -> None:
        peers = {f"n{number}": f"127.0.0.1:{40000 + number}" for number in range(nodes)}
        self.settings = DLedgerSettings(GROUP, self_id, peers, **changes)
        self.ledger = MemoryLedger(1 << 20)
        for entry_term in entries:
            self.ledger.append(entry_term, [b"%d" % self.ledger.end_index])
        self.now = 100_000
        vote = TermVote(term, voted_for)
        self.node = Node(self.settings, self.ledger, vote, Random(1), self.now)
        self.done: list[Action] = []
        self._token = 0

    def _collect(self) -> list[Action]:
        done = list(self.node.outbox)
        self.node.outbox.clear()
        self.done += done
        return done

    # Time

    def run(self, milliseconds: int) -> list[Action]:
        """
        Let time pass, and wake the node at the times that it asked for.

        :returns: the actions of the node.
        """
        done = self._collect()
        end = self.now + milliseconds
        for _ in range(10_000):
            wake = max(self.node.next_wake, self.now)
            if wake > end:
                break
            self.now = wake
            self.node.tick(self.now)
            done += self._collect()
        self.now = end
        return done

    # What peers say

    def ask(self, code: int, message: GroupMessage) -> Any:
        """
        Hand a request to the node.

        :returns: the answer; None: the node has not answered yet.
        """
        self._token += 1
        self.node.request(code, message, self._token, self.now)
        return self.answer_to(self._token, self._collect())

    @staticmethod
    def answer_to(token: int, actions: list[Action]) -> Any:
        """Return the answer to a request among these actions."""
        answers = [a.message for a in actions if isinstance(a, AnswerRequest) and a.token == token]
        return answers[0] if answers else None

    @property
    def last_token(self) -> int:
        """Return the token of the last request."""
        return self._token

    def respond(self, call: SendRequest, message: GroupMessage | None) -> list[Action]:
        """Hand the node an answer to a request that it has sent."""
        self.node.response(call.peer, call.call_id, message, self.now)
        return self._collect()

    def vote(self, candidate: str, term: int, index: int, ledger_term: int, **more: Any) -> Any:
        """Ask the node for its vote for a candidate; the default of `more` is a correct request."""
        base: dict[str, Any] = {
            "group": GROUP,
            "remote_id": self.settings.self_id,
            "local_id": candidate,
        }
        request = VoteRequest(
            **(
                base
                | {
                    "leader_id": candidate,
                    "term": term,
                    "ledger_end_index": index,
                    "ledger_end_term": ledger_term,
                }
                | more
            )
        )
        return self.ask(DLedgerRequestCode.VOTE, request)

    def beat(self, leader: str, term: int) -> Any:
        """Hand a leader's heartbeat to the node."""
        request = HeartBeatRequest(
            group=GROUP,
            remote_id=self.settings.self_id,
            local_id=leader,
            leader_id=leader,
            term=term,
        )
        return self.ask(DLedgerRequestCode.HEART_BEAT, request)

    def push(
        self,
        kind: PushType,
        term: int,
        *entries: Entry,
        commit: int = -1,
        leader: str = "n0",
        batch: bool = False,
    ) -> Any:
        """Hand a leader's push to the node."""
        request = PushEntryRequest(
            group=GROUP,
            remote_id=self.settings.self_id,
            local_id=leader,
            leader_id=leader,
            term=term,
            type=kind,
            commit_index=commit,
            entry=entries[0] if entries and not batch else None,
            batch_entry=entries if batch else (),
        )
        return self.ask(DLedgerRequestCode.PUSH, request)

    def next_entry(self, term: int, skip: int = 0, body: bytes = b"next") -> Entry:
        """Return the entry that a leader would append next."""
        pos = self.ledger.end_pos
        return Entry(self.ledger.end_index + 1 + skip, term, pos + skip * (48 + len(body)), body)

    # What the node says

    def sent(
        self, kind: type[GroupMessage], actions: list[Action] | None = None
    ) -> list[SendRequest]:
        """Return the requests of a kind among these actions; None: among all actions so far."""
        among = self.done if actions is None else actions
        return [a for a in among if isinstance(a, SendRequest) and isinstance(a.message, kind)]

    def of(self, kind: type[Any], actions: list[Action] | None = None) -> list[Any]:
        """Return the actions of a kind among these; None: among all actions so far."""
        return [a for a in (self.done if actions is None else actions) if isinstance(a, kind)]

    # Short ways to a role

    def follow(self, leader: str = "n0") -> "Script":
        """
        Make the node a follower of a leader. If its ledger ends with an entry of this term, the
        leader compares the entry.
        """
        term, ledger = self.node.term, self.ledger
        self.beat(leader, term)
        assert self.node.role is MemberRole.FOLLOWER
        last = ledger.entry(ledger.end_index)
        if last is not None and last.term == term:
            if self.push(PushType.COMPARE, term, last, leader=leader) is None:  # not synced yet
                self.node.synced(last.index, self.now)
            assert self.answer_to(self.last_token, self.done + self._collect()).code == 200
        self.done.clear()
        return self

    def lead(self) -> "Script":
        """Make the node the leader with all votes, and let all others follow it."""
        self.beaten(self.win().run(0))
        return self

    def win(self) -> "Script":
        """Make the node the leader with all votes."""
        for _ in range(20):
            votes = self.sent(VoteRequest, self.run(700))
            for call in votes:
                if self.node.role is not MemberRole.CANDIDATE:
                    break
                answer = VoteResponse(term=self.node.term, vote_result="ACCEPT")  # type: ignore[arg-type]
                self.respond(call, answer)
            if self.node.role is MemberRole.LEADER:
                break
        assert self.node.role is MemberRole.LEADER
        return self

    def beaten(self, actions: list[Action], code: int = 200, term: int = -1) -> list[Action]:
        """Let all others answer the heartbeats among these actions."""
        done: list[Action] = []
        for call in self.sent(HeartBeatRequest, actions):
            done += self.respond(call, HeartBeatResponse(code=code, term=term))
        return done

    def put(self, *bodies: bytes) -> list[Action]:
        """Put entries, as the broker does."""
        made = self.ledger.append(self.node.term, bodies)
        self.node.appended(made[-1].index, self.now)
        return self._collect()

    def pushed(
        self, call: SendRequest, code: int = 200, *, begin: int = 0, end: int | None = None
    ) -> list[Action]:
        """Hand the node a follower's answer to a push."""
        request = call.message
        assert isinstance(request, PushEntryRequest)
        entries = request.batch_entry or (() if request.entry is None else (request.entry,))
        answer = PushEntryResponse(
            group=GROUP,
            term=request.term,
            code=code,
            index=entries[0].index if entries else None,
            count=len(entries),
            begin_index=begin,
            end_index=(entries[-1].index if entries else -1) if end is None else end,
        )
        return self.respond(call, answer)


__all__ = ["CommitIndexMoved", "Persist", "PutsCompleted", "RoleChanged", "Script"]
