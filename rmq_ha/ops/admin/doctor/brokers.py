"""Asks one broker for all facts that it can tell, and probes its ports."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from prometheus_client.parser import text_string_to_metric_families

from rmq_ha.base.config.addresses import ANY_ADDRESS
from rmq_ha.base.errors import ProtocolViolation, RemotingError
from rmq_ha.base.model.host_port import HostPort, parse_host_port
from rmq_ha.base.tls.files import KeyPair, TlsFiles, certificate_names, certificate_text
from rmq_ha.base.tls.options import TlsOptions
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.brokers import broker_config, replication_of, runtime_info, topic_table
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.ops.admin.doctor.facts import (
    BrokerFacts,
    CertificateFacts,
    ClusterFacts,
    NotLooked,
    Sample,
    Status,
)
from rmq_ha.ops.admin.doctor.probe import certificate_at, page_at, port_at
from rmq_ha.ops.admin.session import Session

_FAST = 2
_UNREADABLE = (ValueError, ArithmeticError, LookupError, TypeError, AttributeError)
"""Exceptions that the parser of metrics raises if the text is not in Prometheus' format."""
_LOOPBACKS = ("127.", "::1", "localhost")


async def look_at_broker(
    asker: Asker, session: Session, facts: ClusterFacts, broker: BrokerFacts, here: str
) -> list[NotLooked]:
    """
    Ask a broker and its ports, and fill in the facts about it.

    :param here: this machine's address.
    :returns: the facts that could not be asked for.
    """
    host = session.host
    timeout_s = min(session.options.timeout_ms / 1000, 3.0)
    began = host.clock.seconds()
    # Each answer is kept at once: an older broker refuses some of the requests.
    try:
        broker.config = await asker.run(broker_config(broker.address))
        broker.took_ms = round((host.clock.seconds() - began) * 1000)
        broker.info = await asker.run(runtime_info(broker.address))
        broker.replication = replication_of(broker.info)
        _clock_of(broker, host.now_ms())
        table = await asker.run(topic_table(broker.address))
        broker.topics, broker.topics_changed_ms = frozenset(table.topics), table.version.timestamp
        broker.topic_configs = table.topics
    except RemotingError as error:
        broker.problem = str(error)
    except (BrokerRefused, ProtocolViolation) as error:
        broker.refused = str(error)
    broker.plain = await port_at(host, broker.address, timeout_s)
    if not broker.answers:
        why = broker.refused or "it does not answer"
        return [NotLooked(f"how {broker} is", why)]
    missing = []
    if broker.refused or broker.problem:
        why = broker.refused or broker.problem or ""
        missing.append(NotLooked(f"parts of {broker}", why))
    await _look_at_ports(session, broker, timeout_s)
    missing += await _look_at_status(session, broker, here, timeout_s)
    missing += await _look_at_certificate(session, facts, broker, timeout_s)
    if broker.clock_ahead_ms is None:
        missing.append(
            NotLooked(f"the clock of {broker}", "an older one tells it at its status port only")
        )
    return missing


async def _look_at_certificate(
    session: Session, facts: ClusterFacts, broker: BrokerFacts, timeout_s: float
) -> list[NotLooked]:
    """
    Look at the certificate that the broker shows, if this client or the broker is set up for TLS.
    """
    if not (session.options.use_tls or broker.config.get("tls.server.certPath")):
        return []
    pair = _own_pair(session)
    if pair is None and broker.config.get("tls.server.need.client.auth") == "require":
        # The broker would count this as a connection of a stranger, and doctor would name it.
        why = "the broker requires one of this command: give --tls-cert and --tls-key"
        return [NotLooked(f"the certificate of {broker}", why)]
    try:
        shown = await certificate_at(session.host, broker.address, timeout_s, pair)
    except OSError as error:
        return [NotLooked(f"the certificate of {broker}", str(error))]
    facts.certificates.append(
        CertificateFacts(
            broker.address,
            certificate_text(shown),
            shown.not_valid_before_utc,
            shown.not_valid_after_utc,
            certificate_names(shown),
            parse_host_port(broker.address)[0],
        )
    )
    return []


def _own_pair(session: Session) -> KeyPair | None:
    read_bytes = session.host.disk.read_bytes
    options = TlsOptions(session.options.tls, read_bytes)
    return TlsFiles(options, read_bytes).key_pair("tls.client")


async def _look_at_ports(session: Session, broker: BrokerFacts, timeout_s: float) -> None:
    own = parse_host_port(broker.address)
    broker.fast = await port_at(session.host, str(own.with_distance(-_FAST)), timeout_s)
    text = broker.config.get("haListenPort", "")
    if broker.is_master and text.isdecimal():
        address = broker.config.get("brokerIP2") or own.host
        broker.ha = await port_at(session.host, str(HostPort(address, int(text))), timeout_s)


async def _look_at_status(
    session: Session, broker: BrokerFacts, here: str, timeout_s: float
) -> list[NotLooked]:
    port = broker.config.get("metricsPort", "0")
    if port in ("", "0"):
        why = "metricsPort is not set there" if broker.is_ours else "it has none"
        return [NotLooked(f"/healthz and /metrics of {broker}", why)]
    name, _ = parse_host_port(broker.address)
    own = broker.config.get("metricsAddress", "")
    if own.startswith(_LOOPBACKS) and not (name.startswith(_LOOPBACKS) or name == here):
        why = f"it listens on {own} of its own machine only: run doctor there"
        return [NotLooked(f"/healthz and /metrics of {broker}", why)]
    status = Status(address=f"{name if own in ANY_ADDRESS else own}:{port}")
    broker.status = status
    try:
        page = await page_at(session.host, status.address, "/healthz", timeout_s)
        status.health, status.is_ready = page.text.strip(), page.code == 200
        if broker.clock_ahead_ms is None:
            date = page.headers.get("date", "")
            broker.clock_ahead_ms = clock_ahead(date, session.host.now_ms())
        status.metrics = await metrics_at(session, status.address)
    except (OSError, ValueError) as error:
        status.problem = str(error)
    return []


async def metrics_at(session: Session, address: str) -> dict[str, list[Sample]]:
    """
    Read a status port's metrics.

    :returns: samples by metric name.
    :raises OSError: the page cannot be fetched.
    :raises ValueError: the page cannot be read.
    """
    page = await page_at(session.host, address, "/metrics", 10.0)
    if page.code != 200:
        raise OSError(f"/metrics answers {page.code}")
    return samples_in(page.text)


def samples_in(text: str) -> dict[str, list[Sample]]:
    """
    Parse metrics in Prometheus' text format.

    :returns: samples by metric name.
    :raises ValueError: the text is not in that format.
    """
    samples: dict[str, list[Sample]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    except _UNREADABLE as error:
        raise ValueError(f"/metrics cannot be read: {error}") from None
    return samples


def clock_ahead(date: str, now_ms: int) -> int | None:
    """
    Return by how many ms a server's clock is ahead, from the `Date` of its answer. The date has
    whole seconds, so it is half a second old on average; that is added.
    """
    try:
        moment = parsedate_to_datetime(date)
    except (TypeError, ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round((moment - datetime.fromtimestamp(now_ms / 1000, UTC)).total_seconds() * 1000) + 500


def _clock_of(broker: BrokerFacts, now_ms: int) -> None:
    """
    Compute how many milliseconds the broker's clock is ahead of the clock of this machine.

    A broker of rmq-ha reports its time. A Java broker reports the time of its start
    (`bootTimestamp`) and how long it has run (`runtime`): the sum is its time.

    :param now_ms: time of this machine when the broker's answer came.
    """
    told = broker.replication.get("now_ms")
    if isinstance(told, int):
        broker.clock_ahead_ms = told - now_ms
    boot = broker.info.get("bootTimestamp", "")
    if not broker.is_ours and broker.runs_s is not None and boot.isdecimal():
        broker.clock_ahead_ms = int(boot) + broker.runs_s * 1000 + 500 - now_ms
