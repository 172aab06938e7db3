"""Facts of this machine: a broker's properties file, and its store."""

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class LocalFacts:
    """
    A broker's properties file and its store on this machine.

    :ivar file: the properties file; empty: none was given.
    :ivar error: why no broker starts with the file.
    :ivar unknown: keys that no server reads, each with its place.
    :ivar doubtful: lines whose values can hardly be meant, each with its reason.
    :ivar settings: the settings as they stand in the file.
    :ivar rendered: the settings as a broker understands them.
    :ivar address: where a broker of this file answers.
    :ivar name_servers: `namesrvAddr`.
    :ivar controllers: addresses of the controllers; empty: the broker is not in controller mode.
    :ivar store: the store's directory; empty: none is known.
    :ivar is_there: whether the store's directory exists.
    :ivar log_files: files of the commit log.
    :ivar queue_topics: directories of consume queues.
    :ivar has_abort: whether the file `abort` exists: a broker runs, or did not stop in an orderly
        way.
    :ivar set_aside: folders with messages that a broker gave up.
    :ivar damaged_tables: files of tables that cannot be read.
    :ivar free: free bytes of the store's partition; None: unknown.
    :ivar file_size: size of a file of the commit log, in bytes.
    :ivar unresolved: host names in the file that stand for no address.
    :ivar is_starting: the broker is about to start, so it is not expected to run.
    :ivar ports: ports that the broker listens on, each with its purpose.
    :ivar taken_ports: those of `ports` that another process listens on already.
    :ivar is_open: whether a process has the store open.
    :ivar is_writable: whether this process may write to the store.
    :ivar not_here: keys with addresses to listen on that are not this machine's.
    :ivar elsewhere: keys with addresses that the broker tells others and that are not this
        machine's.
    :ivar master_address: address where the master takes slaves; empty: the broker is not a slave,
        or the address is not known.
    :ivar master_problem: why this machine cannot reach `master_address`.
    :ivar most_files: how many files a process like this may open; 0: nobody asked.
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
