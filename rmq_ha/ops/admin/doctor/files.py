"""Rules: a broker's properties file, its store and its certificates on this machine."""

import ipaddress
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from rmq_ha.base.config.all_keys import ALL_KEYS
from rmq_ha.ops.admin.doctor.facts import BrokerFacts, CertificateFacts, ClusterFacts
from rmq_ha.ops.admin.doctor.findings import DoctorSeverity, Observation, Rule

SOON = timedelta(days=30)
MADE_UP = ("rmq-ha",)
"""Names in certificates that `rmq_ha.base.tls.files.self_signed` makes."""
_INDEX_BYTES = 420_000_040
_NOT_COMPARED = ("startAcceptSendRequestTimeStamp",)
_ADDRESS_KEYS = tuple(name for name, row in ALL_KEYS.items() if row.is_resolved)


def _wrong(facts: ClusterFacts) -> Iterator[Observation]:
    """Report an error of the file, unless a more specific rule reports it."""
    error = facts.local.error if facts.local else None
    told = [
        said.text.partition("=")[0] for why in (_names, _name_server_list) for said in why(facts)
    ]
    if facts.local and error and not any(f" {key}=" in error for key in told):
        yield Observation(facts.local.file, error)


def _unknown(facts: ClusterFacts) -> Iterator[Observation]:
    for text in facts.local.unknown if facts.local else ():
        yield Observation(facts.local.file if facts.local else "", text)


def _doubtful(facts: ClusterFacts) -> Iterator[Observation]:
    for text in facts.local.doubtful if facts.local else ():
        yield Observation(facts.local.file if facts.local else "", text)


def _names(facts: ClusterFacts) -> Iterator[Observation]:
    for key in _ADDRESS_KEYS if facts.local else ():
        assert facts.local is not None
        value = facts.local.rendered.get(key) or facts.local.settings.get(key, "")
        try:
            ipaddress.ip_address(value or "::")
        except ValueError:
            yield Observation(facts.local.file, f"{key}={value} is no address")


def _name_server_list(facts: ClusterFacts) -> Iterator[Observation]:
    value = facts.local.settings.get("namesrvAddr", "") if facts.local else ""
    if facts.local and ("," in value or "://" in value):
        yield Observation(facts.local.file, f"namesrvAddr={value}")


def _broker_of_file(facts: ClusterFacts) -> BrokerFacts | None:
    """Return the broker of the properties file that was given."""
    if facts.local is None or not facts.local.address:
        return None
    return next((b for b in facts.brokers if b.address == facts.local.address), None)


def _not_running(facts: ClusterFacts) -> Iterator[Observation]:
    broker = _broker_of_file(facts)
    if broker is not None and broker.problem is not None:
        yield Observation(
            broker.address, f"the broker of this file does not answer: {broker.problem}"
        )


def _not_registered(facts: ClusterFacts) -> Iterator[Observation]:
    broker = _broker_of_file(facts)
    if broker is None or not broker.answers:
        return
    for server in facts.name_servers:
        known = {address for ids in server.brokers.values() for address in ids.values()}
        if server.answers and broker.address not in known:
            yield Observation(
                broker.address, f"it runs, but the name server {server.address} has it not"
            )


def _file_differs(facts: ClusterFacts) -> Iterator[Observation]:
    broker = _broker_of_file(facts)
    if broker is None or not broker.answers or facts.local is None:
        return
    for key, value in facts.local.rendered.items():
        running = broker.config.get(key)
        if running is None or value == "***" or key in _NOT_COMPARED:
            continue
        if running != value:
            yield Observation(
                facts.local.file, f"it says {key}={value}, the broker runs with {running}"
            )


def _log_missing(facts: ClusterFacts) -> Iterator[Observation]:
    local = facts.local
    if local and local.is_there and local.queue_topics and not local.log_files:
        yield Observation(local.store, f"queues of {local.queue_topics} topics, but no commit log")


def _unclean(facts: ClusterFacts) -> Iterator[Observation]:
    local, broker = facts.local, _broker_of_file(facts)
    if local and local.has_abort and broker is not None and broker.problem is not None:
        yield Observation(local.store, "its last broker did not stop in an orderly way")


def _tables(facts: ClusterFacts) -> Iterator[Observation]:
    for path in facts.local.damaged_tables if facts.local else ():
        yield Observation(path, "it is no JSON")


def _no_room(facts: ClusterFacts) -> Iterator[Observation]:
    local = facts.local
    if local is None or local.free is None:
        return
    needed = local.file_size + _INDEX_BYTES
    if local.free < needed:
        yield Observation(
            local.store, f"{local.free >> 20} MiB are free, a new file needs {needed >> 20}"
        )


def _set_aside(facts: ClusterFacts) -> Iterator[Observation]:
    local = facts.local
    if local and local.set_aside:
        named = ", ".join(local.set_aside[:5]) + (" ..." if len(local.set_aside) > 5 else "")
        yield Observation(local.store, f"setaside has {len(local.set_aside)} folders: {named}")


def _new_store(facts: ClusterFacts) -> Iterator[Observation]:
    if facts.local and facts.local.store and not facts.local.is_there:
        yield Observation(facts.local.store, "there is no such directory")


def _certificates(facts: ClusterFacts) -> Iterator[tuple[CertificateFacts, datetime]]:
    now = datetime.fromtimestamp(facts.now_ms / 1000, UTC)
    return ((item, now) for item in facts.certificates)


def _certificate_ended(facts: ClusterFacts) -> Iterator[Observation]:
    for item, now in _certificates(facts):
        if item.ends <= now:
            yield Observation(
                item.where, f"the certificate of {item.name} ended at {item.ends:%Y-%m-%d}"
            )


def _ends(facts: ClusterFacts) -> Iterator[Observation]:
    for item, now in _certificates(facts):
        if now < item.ends <= now + SOON:
            days = (item.ends - now).days
            yield Observation(
                item.where,
                f"the certificate of {item.name} ends in {days} days, at {item.ends:%Y-%m-%d}",
            )


def _not_yet(facts: ClusterFacts) -> Iterator[Observation]:
    for item, now in _certificates(facts):
        if item.begins > now:
            yield Observation(
                item.where, f"the certificate of {item.name} begins at {item.begins:%Y-%m-%d %H:%M}"
            )


def _other_host(facts: ClusterFacts) -> Iterator[Observation]:
    for item in facts.certificates:
        if item.host and item.names and item.host not in item.names and not _is_made_up(item):
            yield Observation(item.where, f"its certificate is for {', '.join(item.names[:5])}")


def _is_made_up(item: CertificateFacts) -> bool:
    return item.names == MADE_UP


def _made_up(facts: ClusterFacts) -> Iterator[Observation]:
    for item in facts.certificates:
        if item.host and _is_made_up(item):
            yield Observation(item.where, "its certificate is one that it made itself at its start")


RULES = (
    Rule(
        "file-wrong",
        DoctorSeverity.ERROR,
        "no broker starts with this properties file",
        "correct the line in the finding; `twistd rmqha --config FILE --check` reads the file "
        "again",
        _wrong,
    ),
    Rule(
        "key-unknown",
        DoctorSeverity.WARNING,
        "the properties file has an unknown key: the intended setting is not in effect",
        "correct its spelling, or remove it",
        _unknown,
    ),
    Rule(
        "value-doubtful",
        DoctorSeverity.WARNING,
        "a value in the properties file is probably a mistake: quotes, a comment, `~` or `$` in "
        "it, or addresses and sizes that do not fit together",
        "correct the line; `--check` fails until then",
        _doubtful,
    ),
    Rule(
        "address-is-name",
        DoctorSeverity.ERROR,
        "the properties file has a host name where an address is needed",
        "write the address that clients or slaves reach (`brokerIP1`, `brokerIP2`), or an "
        "address of this machine (`bindAddress`, `metricsAddress`)",
        _names,
    ),
    Rule(
        "name-servers-misspelt",
        DoctorSeverity.ERROR,
        "a list of name servers with commas or as a URL",
        "write host:port, with `;` between two name servers: namesrvAddr=a:9876;b:9876",
        _name_server_list,
    ),
    Rule(
        "not-running",
        DoctorSeverity.ERROR,
        "the broker of this properties file does not answer",
        "start the broker; if it runs, it does not listen at `brokerIP1` and `listenPort` (see "
        "`bindAddress`), or a firewall blocks the port",
        _not_running,
    ),
    Rule(
        "not-registered",
        DoctorSeverity.ERROR,
        "the broker of this properties file runs, and a name server does not know it: clients do "
        "not find it",
        "compare `namesrvAddr` in the file with this name server; the broker's log says why a "
        "registration fails; another broker may have taken its name and id (see id-taken)",
        _not_registered,
    ),
    Rule(
        "file-differs",
        DoctorSeverity.WARNING,
        "the properties file differs from the settings of the running broker: after the next "
        "start the settings of the file hold",
        "restart the broker if the file is right; otherwise correct the file",
        _file_differs,
    ),
    Rule(
        "log-missing",
        DoctorSeverity.ERROR,
        "a store has queues but no commit log: a disk is not mounted, or files were deleted",
        "do not start a broker on it: mount the disk, or restore the files; docs/operations.md, "
        '"Damaged stores"',
        _log_missing,
    ),
    Rule(
        "stopped-unclean",
        DoctorSeverity.WARNING,
        "the last broker of this store crashed, or was killed: its file `abort` is there, and "
        "no broker answers",
        "start the broker and read in its log what it repairs; if its slave has more messages, "
        "run `rmqha-admin promote` on the slave's machine first",
        _unclean,
    ),
    Rule(
        "table-damaged",
        DoctorSeverity.ERROR,
        "a table of a store (topics, groups, offsets) cannot be read",
        "stop the broker, and replace the table by its `.bak` or by the slave's copy",
        _tables,
    ),
    Rule(
        "no-room",
        DoctorSeverity.ERROR,
        "there is no room for the next file of the log and of the index: puts will be refused",
        "free some space or enlarge the disk; smaller files (`mappedFileSizeCommitLog`) only in "
        "a new store",
        _no_room,
    ),
    Rule(
        "set-aside-left",
        DoctorSeverity.NOTE,
        "a store has folders with messages that its broker gave up",
        "`rmqha-admin setaside list --store <storePathRootDir>` says why, and how many messages of "
        "which topic; `setaside resend FOLDER` sends them again; delete the folders that nobody "
        "needs",
        _set_aside,
    ),
    Rule(
        "store-new",
        DoctorSeverity.NOTE,
        "the store's directory does not exist: a broker that starts there begins with an empty "
        "store",
        "if the store is not meant to be new: mount the disk, or correct `storePathRootDir`",
        _new_store,
    ),
    Rule(
        "certificate-ended",
        DoctorSeverity.ERROR,
        "a certificate has expired: peers refuse it",
        "renew the certificate, then send SIGHUP to the process (docs/security.md)",
        _certificate_ended,
    ),
    Rule(
        "certificate-ends",
        DoctorSeverity.WARNING,
        "a certificate expires within 30 days",
        "renew the certificate, then send SIGHUP to the process (docs/security.md)",
        _ends,
    ),
    Rule(
        "certificate-not-yet",
        DoctorSeverity.ERROR,
        "a certificate is not valid yet: it is too new, or a clock is behind",
        "see clocks-apart; if no clock is wrong, wait, or have the certificate issued again",
        _not_yet,
    ),
    Rule(
        "certificate-of-another",
        DoctorSeverity.WARNING,
        "a certificate does not name the address at which a server shows it: clients that check "
        "names refuse it",
        "have the certificate issued with this address among its subjectAltNames, or register "
        "the broker (`brokerIP1`) and the name servers under a name that it has",
        _other_host,
    ),
    Rule(
        "certificate-made-up",
        DoctorSeverity.NOTE,
        "a broker in test mode shows a certificate that nobody can check",
        "set tls.test.mode.enable=false, `tls.server.certPath` and `tls.server.keyPath`; "
        "docs/security.md",
        _made_up,
    ),
)
