"""What the consensus core wants done, in order, and what it needs of a ledger."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from rmq_ha.base.store_format.dledger_values import Entry, Role, Room, TermVote
from rmq_ha.server.dledger.messages import GroupMessage


class Persist(NamedTuple):
    """A barrier: nothing behind it may be done before this is on the disk."""

    state: TermVote


class Send(NamedTuple):
    """A request to a peer; `Node.response` takes what became of it."""

    peer: str
    call_id: int
    code: int
    message: GroupMessage
    timeout_ms: int


class Answer(NamedTuple):
    """The answer to a request, once for each token that `Node.request` was given."""

    token: Any
    message: GroupMessage


class Sync(NamedTuple):
    """The ledger shall be synced, then `Node.synced` told; never two at a time."""


class PutsCompleted(NamedTuple):
    """
    Puts of this leadership up to an index, as far as they are not complete, are decided.

    :ivar code: 200; 502: no quorum in time, they may still be committed; 404: not leader any more.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index
    code: int


class RoleChanged(NamedTuple):
    """This member is something else, or follows somebody else, now."""

    role: Role
    term: int
    leader_id: str | None


class CommitIndexMoved(NamedTuple):
    """The ledger's committed index has moved."""

    index: int  # type: ignore[assignment]  # hides tuple.index


Action = Persist | Send | Answer | Sync | PutsCompleted | RoleChanged | CommitIndexMoved


class ILedger(Protocol):
    """The log as far as the core uses it; a begin, end or committed index of -1: there is none."""

    @property
    def begin_index(self) -> int:
        """The first entry."""

    @property
    def end_index(self) -> int:
        """The last entry."""

    @property
    def end_term(self) -> int:
        """The last entry's term."""

    @property
    def end_pos(self) -> int: ...

    @property
    def committed_index(self) -> int: ...

    @property
    def room(self) -> Room:
        """How much its disk still takes."""

    def append(self, term: int, bodies: Sequence[bytes]) -> list[Entry]: ...

    def append_entry(self, entries: Sequence[Entry]) -> None: ...

    def truncate_to(self, entry: Entry) -> None:
        """
        Make this the last entry.

        Unless it is here already, what is before it stays only as far as that is committed: a
        leader that has expired its first entries cuts where its ledger begins, and cannot know
        whether what the follower has before that is what it had itself. Else it is the only one.
        """

    def entry(self, index: int) -> Entry | None: ...

    def entries(self, index: int, max_bytes: int, max_count: int) -> list[Entry]:
        """Consecutive entries, at least one if there is one."""

    def commit(self, index: int) -> None:
        """Move the committed index; never back, never beyond the end."""
