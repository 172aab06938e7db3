"""What /api/... answers, as types: docs/reference/status-port.md has the list.

Sizes are bytes, rates are by second, moments are ms since the epoch (`_ms`), durations seconds.
"""

from enum import StrEnum

from msgspec import Struct, field

from rmq_ha.ops.app.page.events import Event, Lane


class Tone(StrEnum):
    """How a thing is, for its colour; a word always says it, too."""

    GOOD = "good"
    WARN = "warn"
    ERROR = "error"
    IDLE = "idle"


class Member(Struct, frozen=True, kw_only=True):
    """
    One of a pair, a group or a set.

    :ivar key: stays the same while its role, its id or its connection changes.
    :ivar is_here: it is the one that answers.
    :ivar state: `takes messages`, `caught up`, `following`, `gone`, ...
    :ivar lag_bytes: what it has not acknowledged, or None: that cannot be said from here.
    :ivar note: what else there is to say.
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


class Notice(Struct, frozen=True):
    """Something that somebody should look at. `hint`: what to do."""

    tone: Tone
    text: str
    hint: str = ""


class Disk(Struct, frozen=True):
    """:ivar used: 0 to 1; `refuses_at`: from where on messages are refused."""

    used: float
    refuses_at: float
    total: int = 0
    free: int = 0


class Log(Struct, frozen=True):
    """The commit log. `oldest_ms`: None: it has not filled half a file yet."""

    size: int
    end: int
    unflushed: int
    undispatched: int
    oldest_ms: int | None = None


class Certificate(Struct, frozen=True):
    """:ivar setting: the key that names it; `who`: whom it is for."""

    setting: str
    who: str
    ends_ms: int


class Machine(Struct, frozen=True, kw_only=True):
    """
    A broker of the cluster, as a name server or the broker itself tells of it.

    :ivar broker_id: None: no name server lists it at the moment.
    :ivar seen_ms: when it registered last (name server), or answered (broker).
    :ivar behind_bytes: its log's end against its master's.
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


class Overview(Struct, frozen=True, kw_only=True):
    """
    One sheet.

    :ivar server: `broker`, `namesrv` or `controller`; of the others many parts are empty.
    :ivar role: of this server now: `SYNC_MASTER`, `SLAVE`, ...
    :ivar numbers: what there is of each, by name.
    :ivar cluster_note: why `machines` does not show all.
    :ivar last_event: its number.
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
    notices: list[Notice] = []
    rates: dict[str, float | None] = {}
    numbers: dict[str, int] = {}
    members: list[Member] = []
    machines: list[Machine] = []
    cluster_note: str = ""
    disk: Disk | None = None
    log: Log | None = None
    certificates: list[Certificate] = []
    name_servers: list[str] = []
    lanes: list[Lane] = []
    last_event: int = 0


class Series(Struct, frozen=True):
    """Points that were taken `step_s` apart; None where nothing was measured."""

    step_s: int
    at_ms: list[int]
    series: dict[str, list[float | None]]


class EventPage(Struct, frozen=True):
    """Newest first."""

    last: int
    events: list[Event]


class Topic(Struct, frozen=True, kw_only=True):
    """
    :ivar kind: `normal`, `retry`, `dlq` or `system`.
    :ivar messages: that are there still; `total`: that ever were.
    """

    name: str
    kind: str
    queues: int
    perm: int
    messages: int
    total: int
    put_rate: float
    put_bytes: float


class Group(Struct, frozen=True, kw_only=True):
    """
    :ivar lag: messages that it has not committed, of all its topics.
    :ivar retrying: of them, of its retry topic.
    :ivar dead: messages of its DLQ.
    :ivar model: `CLUSTERING` or `BROADCASTING`; empty: nobody is connected.
    """

    name: str
    topics: int
    lag: int
    retrying: int
    dead: int
    members: int
    get_rate: float
    model: str


class Client(Struct, frozen=True, kw_only=True):
    """One connection in one group. `kind`: `producer` or `consumer`."""

    client_id: str
    address: str
    group: str
    kind: str
    language: str
    version: str
    seen_ms: int


class Topics(Struct, frozen=True):
    """`total`: of those that the filter lets through, of which only some are listed."""

    total: int
    age_s: float
    rows: list[Topic]


class Groups(Struct, frozen=True):
    total: int
    age_s: float
    rows: list[Group]


class Clients(Struct, frozen=True):
    total: int
    age_s: float
    rows: list[Client]


class Queue(Struct, frozen=True, kw_only=True):
    """:ivar last_ms: when its last message was stored; None: it has none."""

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
    queues: list[Queue]
    left_out: int
    groups: list[GroupOfTopic]


class Progress(Struct, frozen=True, kw_only=True):
    """
    One queue of a group.

    :ivar behind_s: the age of the oldest message that it has not committed; None: none, or unknown.
    :ivar member: the client id of who has it; None: nobody said so.
    """

    topic: str
    queue_id: int
    committed: int
    end: int
    lag: int
    behind_s: float | None
    member: str | None


class GroupMember(Struct, frozen=True, kw_only=True):
    """:ivar queues: None: it did not say."""

    client_id: str
    address: str
    language: str
    version: str
    lag: int | None
    queues: int | None


class Subscription(Struct, frozen=True):
    topic: str
    expression: str
    kind: str


class GroupSheet(Struct, frozen=True):
    """One group. `left_out`: queues that are not listed."""

    group: Group
    queues: list[Progress]
    left_out: int
    members: list[GroupMember]
    subscriptions: list[Subscription]


class Consumption(Struct, frozen=True):
    """
    What a group did with a message.

    :ivar state: `passed`, `waiting` or `not wanted`.
    """

    group: str
    state: str
    committed: int


class FoundMessage(Struct, frozen=True, kw_only=True):
    """
    One message.

    :ivar body: its beginning, as text or, where it is none, in hexadecimal.
    :ivar body_kind: `text`, `hex`, or `compressed`: it could not be inflated.
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


class Search(Struct, frozen=True):
    """:ivar note: what was looked through, and what was not."""

    note: str
    messages: list[FoundMessage] = field(name="found")


class Session(Struct, frozen=True):
    """Whether somebody has to say who they are. `ways`: `token`, `account`."""

    is_open: bool
    ways: list[str] = []
    challenge: str = ""
    who: str = ""


class Fault(Struct, frozen=True):
    """What every other answer than 200 says."""

    error: str
