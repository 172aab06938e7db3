"""
The answers of /api/... as types; docs/reference/status-port.md lists them.

Sizes are in bytes, rates per second, moments in ms since the epoch (`_ms`), durations in seconds.
"""

from enum import StrEnum

from msgspec import Struct, field

from rmq_ha.ops.app.page.events import Event, MemberLane


class Tone(StrEnum):
    """How good or bad a state is. The page shows it by a colour, beside a word."""

    GOOD = "good"
    WARN = "warn"
    ERROR = "error"
    IDLE = "idle"


class MemberRow(Struct, frozen=True, kw_only=True):
    """
    One member of a pair, a group or a set.

    :ivar key: stays the same while its role, its id or its connection changes.
    :ivar is_here: this member is the server that answers.
    :ivar state: `takes messages`, `caught up`, `following`, `gone`, ...
    :ivar lag_bytes: bytes that it has not acknowledged; None: this server does not know.
    :ivar note: a further remark for operators.
    """

    key: str
    name: str
    role: str
    state: str
    tone: Tone
    is_here: bool = False
    since_ms: int | None = None
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    note: str = ""


class PageNotice(Struct, frozen=True):
    """
    A remark that the operator should look at.

    `hint`: the next step for the operator.
    """

    tone: Tone
    text: str
    hint: str = ""


class DiskUse(Struct, frozen=True):
    """
    A disk.

    :ivar used: the share in use, 0 to 1.
    :ivar refuses_at: the share from which on messages are refused.
    """

    used: float
    refuses_at: float
    total: int = 0
    free: int = 0


class LogUse(Struct, frozen=True):
    """
    The commit log.

    `oldest_ms` is None if the log has not filled half a file yet.
    """

    size: int
    end: int
    unflushed: int
    undispatched: int
    oldest_ms: int | None = None


class Certificate(Struct, frozen=True):
    """
    A certificate.

    :ivar setting: the key that names it.
    :ivar who: the subject it is issued for.
    """

    setting: str
    who: str
    ends_ms: int


class MachineRow(Struct, frozen=True, kw_only=True):
    """
    A broker of the cluster, as a name server or the broker itself tells of it.

    :ivar broker_id: None: no name server lists it at the moment.
    :ivar seen_ms: when it last registered (on a name server's page), or answered (on a broker's
        page).
    :ivar behind_bytes: how many bytes its log ends before its master's.
    :ivar page: address of its page; empty: it has none, or other machines do not reach it.
    """

    set_name: str
    broker_id: int | None
    address: str
    cluster: str = ""
    role: str = ""
    tone: Tone = Tone.IDLE
    note: str = ""
    is_here: bool = False
    version: str = ""
    put_rate: float | None = None
    get_rate: float | None = None
    disk_used: float | None = None
    log_end: int | None = None
    behind_bytes: int | None = None
    seen_ms: int | None = None
    page: str = ""


class Overview(Struct, frozen=True, kw_only=True):
    """
    The overview of a server.

    :ivar server: `broker`, `namesrv` or `controller`; for the last two many members are empty.
    :ivar role: role of this server now: `SYNC_MASTER`, `SLAVE`, ...
    :ivar numbers: counts of topics, groups and so on, by name.
    :ivar cluster_note: why `machines` does not show all brokers.
    :ivar last_event: number of the last event.
    """

    now_ms: int
    server: str
    version: str
    started_ms: int
    name: str
    address: str
    is_ready: bool
    health: str
    cluster: str = ""
    role: str = ""
    role_since_ms: int | None = None
    mode: str = ""
    notices: list[PageNotice] = []
    rates: dict[str, float | None] = {}
    numbers: dict[str, int] = {}
    members: list[MemberRow] = []
    machines: list[MachineRow] = []
    cluster_note: str = ""
    disk: DiskUse | None = None
    log: LogUse | None = None
    certificates: list[Certificate] = []
    name_servers: list[str] = []
    lanes: list[MemberLane] = []
    last_event: int = 0


class Series(Struct, frozen=True):
    """Points that were taken `step_s` seconds apart; None where nothing was measured."""

    step_s: int
    at_ms: list[int]
    series: dict[str, list[float | None]]


class EventPage(Struct, frozen=True):
    """
    The events after the number that the page asked for, newest first.

    `last`: number of the newest event of all, whether it is among them or not.
    """

    last: int
    events: list[Event]


class Topic(Struct, frozen=True, kw_only=True):
    """
    A topic.

    :ivar kind: `normal`, `retry`, `dlq` or `system`.
    :ivar messages: how many messages it still holds.
    :ivar total: how many messages it ever held.
    :ivar message_type: its attribute `message.type`, for clients of gRPC; empty: it has none.
    """

    name: str
    kind: str
    message_type: str
    queues: int
    perm: int
    messages: int
    total: int
    put_rate: float
    put_bytes: float


class GroupRow(Struct, frozen=True, kw_only=True):
    """
    A consumer group.

    :ivar lag: messages that it has not committed, over all its topics.
    :ivar retrying: the part of `lag` that is in its retry topic.
    :ivar dead: messages in its dead-letter queue.
    :ivar model: `CLUSTERING` or `BROADCASTING`; empty: no member is connected.
    """

    name: str
    topics: int
    lag: int
    retrying: int
    dead: int
    members: int
    get_rate: float
    model: str


class ClientRow(Struct, frozen=True, kw_only=True):
    """
    One client in one group. `kind`: `producer` or `consumer`; `protocol`: `remoting` or `gRPC`.

    :ivar version: the version of the client; for gRPC that of the SDK, as the client writes it.
    """

    client_id: str
    address: str
    group: str
    kind: str
    language: str
    version: str
    protocol: str
    seen_ms: int


class Topics(Struct, frozen=True):
    """
    A list of topics.

    `total`: how many topics the filter lets through; only some of them are listed.
    """

    total: int
    age_s: float
    rows: list[Topic]


class Groups(Struct, frozen=True):
    total: int
    age_s: float
    rows: list[GroupRow]


class ClientKind(Struct, frozen=True):
    """
    The clients that run the same program.

    :ivar count: number of clients; one in several groups counts once.
    """

    protocol: str
    language: str
    version: str
    count: int


class Clients(Struct, frozen=True):
    """A list of clients. `kinds`: all clients by SDK, language and version, most first."""

    total: int
    age_s: float
    rows: list[ClientRow]
    kinds: list[ClientKind]


class QueueRow(Struct, frozen=True, kw_only=True):
    """
    A queue of a topic.

    :ivar last_ms: when its last message was stored; None: it has none.
    """

    queue_id: int
    min_offset: int
    max_offset: int
    last_ms: int | None


class GroupOfTopic(Struct, frozen=True):
    """A group that commits offsets of a topic."""

    name: str
    lag: int
    members: int


class TopicSheet(Struct, frozen=True):
    """One topic. `left_out`: queues that are not listed."""

    topic: Topic
    queues: list[QueueRow]
    left_out: int
    groups: list[GroupOfTopic]


class ProgressRow(Struct, frozen=True, kw_only=True):
    """
    A group's progress in one queue.

    :ivar behind_s: the age of the oldest message that it has not committed; None: there is none, or
        the age is unknown.
    :ivar member: client id of the member that has the queue; None: no member said so.
    :ivar in_flight: popped messages that are out; None: the group pulls the queue.
    """

    topic: str
    queue_id: int
    committed: int
    end: int
    lag: int
    behind_s: float | None
    member: str | None
    in_flight: int | None


class GroupMember(Struct, frozen=True, kw_only=True):
    """
    A member of a group.

    :ivar queues: the queues that it has; None: it did not say.
    """

    client_id: str
    address: str
    language: str
    version: str
    protocol: str
    lag: int | None
    queues: int | None


class SubscriptionRow(Struct, frozen=True):
    topic: str
    expression: str
    kind: str


class GroupSheet(Struct, frozen=True):
    """One group. `left_out`: queues that are not listed."""

    group: GroupRow
    queues: list[ProgressRow]
    left_out: int
    members: list[GroupMember]
    subscriptions: list[SubscriptionRow]


class Consumption(Struct, frozen=True):
    """
    The progress of a group at one message.

    :ivar state: `passed`, `waiting` or `not wanted`.
    """

    group: str
    state: str
    committed: int


class FoundMessage(Struct, frozen=True, kw_only=True):
    """
    A message that was found.

    :ivar body: its beginning as text; in hexadecimal if it is not text.
    :ivar body_kind: `text`, `hex`, or `compressed` if it could not be inflated.
    """

    id: str
    place_id: str
    topic: str
    queue_id: int
    queue_offset: int
    tags: str
    keys: str
    size: int
    stored_ms: int
    born_ms: int
    born_host: str
    reconsumed: int
    properties: dict[str, str]
    body: str
    body_kind: str
    body_size: int
    consumers: list[Consumption]


class SearchResult(Struct, frozen=True):
    """
    The result of a search.

    :ivar note: which part was searched, and which was not.
    """

    note: str
    messages: list[FoundMessage] = field(name="found")


class SessionState(Struct, frozen=True):
    """
    Whether a client has to enter.

    `ways`: the ways to do it, `token` and `account`.
    """

    is_open: bool
    ways: list[str] = []
    challenge: str = ""
    who: str = ""


class ErrorBody(Struct, frozen=True):
    """The body of every answer whose status is not 200."""

    error: str
