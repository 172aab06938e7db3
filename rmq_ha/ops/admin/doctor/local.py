"""Facts of this machine: a broker's properties file, and its store."""

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Local:
    """
    What lies on this machine: a broker's properties file and its store.

    :ivar file: the properties file; empty: none was given.
    :ivar error: why no broker starts with it.
    :ivar unknown: keys that nobody reads, each with its place.
    :ivar doubtful: lines whose values can hardly be meant, each with its reason.
    :ivar settings: as they stand in the file.
    :ivar rendered: the same as a broker understands them.
    :ivar address: where a broker of this file answers.
    :ivar name_servers: `namesrvAddr`.
    :ivar controllers: addresses of the controllers; empty: it is not in controller mode.
    :ivar store: its directory; empty: none is known.
    :ivar is_there: the store's directory exists.
    :ivar log_files: of the commit log.
    :ivar queue_topics: directories of consume queues.
    :ivar has_abort: the mark of a broker that runs, or did not stop in an orderly way.
    :ivar set_aside: folders with what a broker gave up.
    :ivar damaged_tables: files that are none.
    :ivar free: bytes of the store's partition; None: unknown.
    :ivar file_size: of the commit log.
    :ivar unresolved: host names in it that stand for no address.
    :ivar is_starting: the broker shall start, and nobody expects it to run.
    :ivar ports: that the broker listens on, with what for.
    :ivar taken_ports: of these, where somebody listens already.
    :ivar is_open: somebody has the store open.
    :ivar is_writable: this process may write there.
    :ivar not_here: keys whose addresses a broker listens on, and that are none of this machine.
    :ivar elsewhere: keys whose addresses it tells others, and that are none of this machine.
    :ivar master_address: where its master takes slaves; empty: it is none, or nobody knows.
    :ivar master_problem: why it cannot be reached from here.
    :ivar most_files: open files that a process like this may have; 0: nobody asked.
    """

    file: str = ""
    error: str | None = None
    unknown: list[str] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    rendered: dict[str, str] = field(default_factory=dict)
    address: str = ""
    name_servers: str = ""
    controllers: tuple[str, ...] = ()
    store: str = ""
    is_there: bool = False
    log_files: int = 0
    queue_topics: int = 0
    has_abort: bool = False
    set_aside: list[str] = field(default_factory=list)
    damaged_tables: list[str] = field(default_factory=list)
    free: int | None = None
    file_size: int = 1 << 30
    unresolved: list[str] = field(default_factory=list)
    broker_name: str = ""
    broker_id: int = 0
    role: str = ""
    bind_address: str = ""
    is_starting: bool = False
    ports: list[tuple[int, str]] = field(default_factory=list)
    taken_ports: list[str] = field(default_factory=list)
    is_open: bool = False
    is_writable: bool = True
    not_here: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    master_address: str = ""
    master_problem: str | None = None
    most_files: int = 0
