"""The settings of a DLedger member: the members of its group, and its timeouts,
intervals and limits."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.host_port import parse_host_port

_MEMBER_ID = re.compile(r"[A-Za-z]\d+")
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class DLedgerSettings:
    """
    The settings of one member; times are in ms.

    Spec: dledger.md, section 1.2 (upstream's), section 18.2 (the improvements)

    :ivar peers: `host:port` by member id, with this member's own entry.
    :ivar state_interval: pause before a vote or heartbeat that goes out again "at once".
    :ivar retry_pause: pause of the replication to one peer after an unexpected answer.
    :ivar sync_before_ack: whether an entry counts as stored here only when it is on the disk.
    :ivar commit_own_term_only: whether entries of earlier terms are committed only together with an
        entry of the leader's own term (Raft paper, figure 8). The owner of a leader must append
        such an entry when the term begins.
    :ivar check_leader: whether COMPARE and COMMIT of another leader or term have no effect.
    :ivar check_previous: whether an APPEND needs a COMPARE, TRUNCATE or entry of the same term
        before it. An entry that was reported to this leader as stored is then not cut off by the
        leader's own late request.
    :ivar keep_committed: whether a TRUNCATE below the committed index is refused.
    :ivar sticky_leader: for so long after a sign of the leader a vote with a larger term is
        refused, unless the leader asked for it. 0: never, as upstream. Upstream's candidates do not
        say that they were asked, and take one such answer as a defeat for 6 s.
    :ivar heed_larger_term: whether a leader with a quorum gives in to a member with a larger term
        that refuses its heartbeats for `max_heart_beat_leak` rounds. Such a member could never
        return.
    :ivar new_term_after_restart: whether a member that voted for itself raises the term after a
        restart before it votes again, so that no member leads twice in one term with different
        ledgers.
    :ivar hand_over_when_full: whether a leader whose disk is full, or fills up, hands over to a
        member with room. No member without room is asked to lead.
    :ivar take_leadership_at_once: whether a member that is asked to lead votes without a pause.
    :ivar preferred_leader_retry: pause after a hand-over to a preferred leader before this member
        tries again, if it leads then.
    :ivar max_batches_in_flight: `max_in_flight` of a leader that pushes batches. While so many
        batches are under way, further entries wait and leave together.
    :ivar max_push_bytes: most bytes in flight to one peer.
    :ivar max_waiting_bytes: most bytes of entries that wait for earlier ones.
    :ivar serve_append: whether APPEND requests from outside are appended unchanged (never in a
        broker).
    """

    group: str
    self_id: str
    peers: Mapping[str, str]
    preferred_leader_ids: tuple[str, ...] = ()

    heart_beat_interval: int = 2000
    max_heart_beat_leak: int = 3
    min_vote_interval: int = 300
    max_vote_interval: int = 1000
    vote_timeout: int = 2000
    small_ledger_pause: int = 1000
    min_take_leadership_vote_interval: int = 30
    max_take_leadership_vote_interval: int = 100
    rpc_timeout: int = 3000
    state_interval: int = 10

    max_pending_requests: int = 10000
    max_wait_ack: int = 2500
    max_push_timeout: int = 1000
    commit_interval: int = 1000
    retry_pause: int = 500
    max_in_flight: int = 1000
    max_batches_in_flight: int = 1000
    max_push_bytes: int = 32 * MIB
    is_enable_batch_push: bool = False
    max_batch_push_size: int = 4096
    peer_push_throttle_point: int = 300 * MIB
    throttle_entries: int = 1000
    peer_push_quota: int = 20 * MIB
    max_waiting_pushes: int = 1024
    max_waiting_bytes: int = 64 * MIB

    max_leadership_transfer_wait_index: int = 1000
    leadership_transfer_wait_timeout: int = 1000
    preferred_leader_interval: int = 1000
    preferred_leader_retry: int = 10000

    sync_before_ack: bool = False
    commit_own_term_only: bool = True
    check_leader: bool = True
    check_previous: bool = True
    keep_committed: bool = True
    sticky_leader: int = 0
    heed_larger_term: bool = True
    new_term_after_restart: bool = True
    hand_over_when_full: bool = True
    take_leadership_at_once: bool = True
    serve_append: bool = False

    others: tuple[str, ...] = field(init=False)
    quorum: int = field(init=False)

    def __post_init__(self) -> None:
        if self.self_id not in self.peers:
            known = ", ".join(self.peers)
            raise ConfigurationError(
                f"dLegerSelfId={self.self_id} is not in dLegerPeers, which has {known or 'nobody'}"
            )
        object.__setattr__(self, "others", tuple(i for i in self.peers if i != self.self_id))
        object.__setattr__(self, "quorum", len(self.peers) // 2 + 1)

    @property
    def leader_silence(self) -> int:
        """Return after how many ms without its leader a follower becomes a candidate."""
        return self.heart_beat_interval * self.max_heart_beat_leak

    @property
    def is_preferred(self) -> bool:
        return self.self_id in self.preferred_leader_ids


def parse_peers(text: str) -> dict[str, str]:
    """
    Read `n0-host:port;n1-host:port`.

    :returns: the addresses by the id of the member.
    :raises ConfigurationError: the text has another form, or an id or address comes twice.

    Spec: dledger.md, section 1.1
    """
    peers: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, _, rest = part.partition("-")
        try:
            address = str(parse_host_port(rest if _MEMBER_ID.fullmatch(name) else ""))
        except ValueError:
            raise ConfigurationError(
                f"dLegerPeers: {part!r} is not of the form n0-host:port (a letter and a number, "
                "a host, a port)"
            ) from None
        if name in peers:
            raise ConfigurationError(f"dLegerPeers: {name} comes twice")
        if address in peers.values():
            raise ConfigurationError(f"dLegerPeers: {address} comes twice")
        peers[name] = address
    if not peers:
        raise ConfigurationError("dLegerPeers is empty; it needs all members, this one included")
    return peers


def parse_ids(text: str | None) -> tuple[str, ...]:
    """Read `n0;n1`, the ids of members in preferredLeaderId."""
    return tuple(part.strip() for part in (text or "").split(";") if part.strip())
