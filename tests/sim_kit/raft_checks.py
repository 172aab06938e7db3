"""
Checks the properties that a DLedger group must keep under all faults: those of the Raft paper's
figure 3, and those of rmq-ha.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rmq_ha.base.store_format.dledger_values import Entry
from rmq_ha.testing.findings import Findings
from tests.sim_kit.raft_ledger import MemoryLedger

MICROSECONDS = 1e6


class IMember(Protocol):
    """The attributes of a machine that the checks read."""

    name: str
    ledger: MemoryLedger


class Put(NamedTuple):
    """A put, and its time (`at`) in microseconds."""

    at: int
    entry: Entry


class Judge:
    """
    Watches a group, and notes broken promises.

    :ivar committed: the entries that any member ever reported as committed, by index.
    :ivar terms: the terms of the committed entries, by index.
    :ivar acknowledged: puts that were answered as committed.
    :ivar statuses: number of puts by the code with which they ended.
    """

    def __init__(self) -> None:
        self.findings = Findings()
        self.leaders: dict[int, str] = {}
        self.committed: list[Entry] = []
        self.terms: list[int] = []
        self.acknowledged: list[Entry] = []
        self.statuses: dict[str, int] = {}
        self.now = 0

    def violation(self, kind: str, text: str) -> None:
        """Note a broken promise."""
        self.findings.violation(self.now / MICROSECONDS, kind, text)

    def leads(self, member: IMember, term: int) -> None:
        """Election safety and leader completeness of earlier terms (Raft, 5.2 and 5.4)."""
        other = self.leaders.setdefault(term, member.name)
        if other != member.name:
            self.violation("election-safety", f"{other} and {member.name} lead term {term}")
        before = len(self.committed)
        while before and self.terms[before - 1] >= term:
            before -= 1
        if before > member.ledger.first:
            last = self.committed[before - 1]
            entry = member.ledger.entry(last.index)
            if entry != last:
                self.violation(
                    "leader-completeness",
                    f"{member.name} leads term {term} with {entry} instead of committed {last}",
                )

    def commits(self, member: IMember, after: int, index: int, term: int) -> None:
        """State machine safety (Raft, 5.4.3): an index is committed once, as one entry."""
        committed, ledger = self.committed, member.ledger
        for number in range(max(after + 1, ledger.first), index + 1):
            entry = ledger.entry(number)
            if entry is None:
                self.violation("commit-gap", f"{member.name} commits {number} and has it not")
            elif number < len(committed):
                if committed[number] is not entry and committed[number] != entry:
                    self.violation(
                        "state-machine-safety",
                        f"{member.name} commits {entry}, committed was {committed[number]}",
                    )
            elif number == len(committed):
                committed.append(entry)
                self.terms.append(term)
            else:
                self.violation("commit-gap", f"{member.name} commits {number}, nobody the last")

    def completed(self, member: IMember, put: Put, code: int) -> None:
        """Note the answer to a put."""
        name = {200: "ok", 502: "no quorum in time", 404: "not the leader"}.get(code, str(code))
        self.statuses[name] = self.statuses.get(name, 0) + 1
        if code != 200:
            return
        self.acknowledged.append(put.entry)
        index = put.entry.index
        if index >= len(self.committed) or self.committed[index] is not put.entry:
            self.violation("acknowledged-uncommitted", f"{member.name}: {put.entry}")

    def logs_match(self, members: Sequence[IMember]) -> None:
        """Log matching (Raft, 5.3): an equal index and term means equal ledgers up to there."""
        for number, member in enumerate(members):
            for other in members[number + 1 :]:
                self._pair_matches(member, other)

    def _pair_matches(self, member: IMember, other: IMember) -> None:
        a, b = member.ledger, other.ledger
        first = max(a.first, b.first)
        last = min(a.end_index, b.end_index)
        while last >= first and a.term_at(last) != b.term_at(last):
            last -= 1
        if last < first:
            return
        mine, theirs = (x.log[first - x.first : last + 1 - x.first] for x in (a, b))
        if mine != theirs:
            at = next(
                n for n, pair in enumerate(zip(mine, theirs, strict=True)) if len(set(pair)) > 1
            )
            self.violation(
                "log-matching",
                f"{member.name} {mine[at]} and {other.name} {theirs[at]} "
                f"before equal {mine[-1][:2]}",
            )

    def at_the_end(self, members: Sequence[IMember]) -> None:
        """
        Check that every acknowledged put is in every ledger, and every entry at the position that
        files would give it.
        """
        self.logs_match(members)
        for member in members:
            ledger = member.ledger
            for entry in self.acknowledged:
                if entry.index >= ledger.first and ledger.entry(entry.index) != entry:
                    self.violation("acknowledged-lost", f"{member.name} has not {entry}")
                    break
            for before, entry in zip(ledger.log, ledger.log[1:], strict=False):
                end = before.pos + before.size
                left = ledger.file_size - end % ledger.file_size
                if entry.pos != (end if entry.size + 8 <= left else end + left):
                    self.violation("position", f"{member.name}: {entry} after {before}")
                    break
                if entry.term < before.term:
                    self.violation("falling-term", f"{member.name}: {entry} after {before}")
                    break
