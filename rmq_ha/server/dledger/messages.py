"""The messages between members, with field names in the style of Python.

Spec: dledger.md, chapter 6.
"""

import msgspec

from rmq_ha.base.model.numbers import Int64
from rmq_ha.base.store_format.dledger_values import Entry
from rmq_ha.server.dledger.codes import PushType, VoteResult


class GroupMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """
    The fields that every message can have.

    Spec: dledger.md, section 5.2

    :ivar remote_id: in a request, the id of the receiver.
    :ivar local_id: in a request, the id of the sender.
    :ivar leader_id: the leader; in a vote the candidate.
    """

    group: str | None = None
    remote_id: str | None = None
    local_id: str | None = None
    leader_id: str | None = None
    term: Int64 = -1
    code: Int64 = 200


class VoteRequest(GroupMessage, frozen=True, kw_only=True):
    """
    A candidate's request for a vote. Spec: dledger.md, section 6.1.

    :ivar transfer: the leader itself asked the candidate to take over. Only rmq-ha knows this key,
        and writes it only when true; upstream ignores unknown keys.
    """

    ledger_end_index: Int64 = -1
    ledger_end_term: Int64 = -1
    transfer: bool = False


class VoteResponse(GroupMessage, frozen=True, kw_only=True):
    """The answer to a request for a vote. Spec: dledger.md, section 6.1."""

    vote_result: VoteResult = VoteResult.UNKNOWN


class HeartBeatRequest(GroupMessage, frozen=True, kw_only=True):
    """A leader's heartbeat. Spec: dledger.md, section 6.2."""


class HeartBeatResponse(GroupMessage, frozen=True, kw_only=True):
    """
    The answer to a heartbeat. A success has only a code and the term -1. Spec: dledger.md, section
    6.2.

    :ivar room: the room on this member's disk, as a `Room`; None: free. Only rmq-ha knows this key,
        and writes it only when the disk is not free.
    """

    room: Int64 | None = None


class PushEntryRequest(GroupMessage, frozen=True, kw_only=True):
    """
    A leader's push of entries, of a commit index or of an entry to compare. Spec: dledger.md,
    section 6.4.

    :ivar batch_entry: entries with consecutive indexes. If this is not empty, `entry` is absent.
    """

    type: PushType = PushType.APPEND
    commit_index: Int64 = -1
    entry: Entry | None = None
    batch_entry: tuple[Entry, ...] = ()


class PushEntryResponse(GroupMessage, frozen=True, kw_only=True):
    """
    A follower's answer to a push. Spec: dledger.md, section 6.4.

    :ivar index: index of the first entry; None for COMMIT.
    :ivar count: number of entries; 0 for COMMIT.
    """

    index: Int64 | None = None
    count: Int64 = 0
    begin_index: Int64 = -1
    end_index: Int64 = -1


class MetadataRequest(GroupMessage, frozen=True, kw_only=True):
    """
    A request for the addresses of the members. Spec: dledger.md, section 6.5.

    :ivar status: ask also for the member's state. Only rmq-ha knows this key, and writes it only
        when true.
    """

    status: bool = False


class MetadataResponse(GroupMessage, frozen=True, kw_only=True):
    """
    The answer to METADATA. All fields but the peers exist only in rmq-ha, and are set only if
    `status` was asked for.

    :ivar peers: addresses by member id, as the answering member knows them.
    :ivar watermarks: by member, the last entry known to be equal to the leader's; only from a
        leader.
    """

    peers: dict[str, str] = {}
    role: str | None = None
    current_term: Int64 | None = None
    voted_for: str | None = None
    begin_index: Int64 | None = None
    end_index: Int64 | None = None
    committed_index: Int64 | None = None
    transferee: str | None = None
    watermarks: dict[str, Int64] | None = None


class GetEntriesRequest(GroupMessage, frozen=True, kw_only=True):
    """A client's request for one entry. Spec: dledger.md, section 6.5."""

    begin_index: Int64 = -1


class GetEntriesResponse(GroupMessage, frozen=True, kw_only=True):
    """
    The answer to a request for one entry.

    :ivar entries: the entry; empty: it was refused.
    """

    entries: tuple[Entry, ...] = ()


class AppendEntryRequest(GroupMessage, frozen=True, kw_only=True):
    """A client's request to append one entry. Spec: dledger.md, section 6.5."""

    body: bytes = b""


class AppendEntryResponse(GroupMessage, frozen=True, kw_only=True):
    """
    The answer to a request to append one entry.

    :ivar pos: position of the entry; -1: it was refused.
    """

    index: Int64 = -1
    pos: Int64 = -1


class LeadershipTransferRequest(GroupMessage, frozen=True, kw_only=True):
    """A request to hand the lead over, or to take it over. Spec: dledger.md, section 6.6."""

    transfer_id: str | None = None
    transferee_id: str | None = None
    take_leadership_ledger_index: Int64 = -1


class LeadershipTransferResponse(GroupMessage, frozen=True, kw_only=True):
    """The answer to a request for a transfer. Spec: dledger.md, section 6.6."""
