"""
The actions that the consensus core demands, in order, and the interface of the ledger that it uses.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from rmq_ha.base.store_format.dledger_values import Entry, MemberRole, Room, TermVote
from rmq_ha.server.dledger.messages import GroupMessage


class Persist(NamedTuple):
    """A barrier: no later action may be done before this state is on the disk."""

    state: TermVote


class SendRequest(NamedTuple):
    """Send a request to a peer. `Node.response` takes the peer's answer, or None when none came."""

    peer: str
    call_id: int
    code: int
    message: GroupMessage
    timeout_ms: int


class AnswerRequest(NamedTuple):
    """Answer a request. The core makes one answer for each token that `Node.request` was given."""

    token: Any
    message: GroupMessage


class Sync(NamedTuple):
    """Sync the ledger, then call `Node.synced`. The core never wants two syncs at a time."""


class PutsCompleted(NamedTuple):
    """
    The outcome of this leadership's puts up to an index, except those that were told before.

    :ivar code: 200: committed; 502: no quorum stored them in time, but they may still be committed;
        404: this member is not the leader any more.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index
    code: int


class RoleChanged(NamedTuple):
    """The news that this member has another role, or follows another leader, from now on."""

    role: MemberRole
    term: int
    leader_id: str | None


class CommitIndexMoved(NamedTuple):
    """The news that the ledger's committed index has moved."""

    index: int  # type: ignore[assignment]  # hides tuple.index


Action = (
    Persist | SendRequest | AnswerRequest | Sync | PutsCompleted | RoleChanged | CommitIndexMoved
)


class ILedger(Protocol):
    """
    The methods of a ledger that the core uses. A begin, end or committed index of -1 means that
    there is no entry.
    """

    @property
    def begin_index(self) -> int:
        """Return the index of the first entry."""

    @property
    def end_index(self) -> int:
        """Return the index of the last entry."""

    @property
    def end_term(self) -> int:
        """Return the term of the last entry."""

    @property
    def end_pos(self) -> int: ...

    @property
    def committed_index(self) -> int: ...

    @property
    def room(self) -> Room:
        """Return how much room the ledger's disk has left."""

    def append(self, term: int, bodies: Sequence[bytes]) -> list[Entry]: ...

    def append_entry(self, entries: Sequence[Entry]) -> None: ...

    def truncate_to(self, entry: Entry) -> None:
        """
        Make this entry the last one.

        If the ledger already holds this entry, only the entries after it are cut. Otherwise earlier
        entries stay only as far as they are committed, and if none can stay, this entry is the only
        one. A leader that has expired its first entries cuts where its ledger begins. It cannot
        know whether the follower's earlier entries equal those that it had itself.
        """

    def entry(self, index: int) -> Entry | None: ...

    def entries(self, index: int, max_bytes: int, max_count: int) -> list[Entry]:
        """Return consecutive entries from `index` on; at least one if the ledger holds `index`."""

    def commit(self, index: int) -> None:
        """Move the committed index forward, at most to the last entry; it never moves back."""
