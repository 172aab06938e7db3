"""Rules: the port for gRPC, the types of topics, and the SDKs that clients use."""

from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address

from rmq_ha.base.model.attributes import MESSAGE_TYPE, MIXED
from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.model.topics import (
    DLQ_PREFIX,
    REPLY_SUFFIX,
    RETRY_PREFIX,
    SYSTEM_TOPICS,
    is_system,
)
from rmq_ha.base.wire.stat_bodies import Connection
from rmq_ha.ops.admin.doctor.facts import BrokerFacts, ClusterFacts
from rmq_ha.ops.admin.doctor.findings import DoctorSeverity, Observation, Rule

_NAMED = 3
"""How many topics a finding names."""


def _slow_protobuf(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        if broker.has_door and broker.door.protobuf == "python":
            yield Observation(str(broker), "its package protobuf decodes messages in plain Python")


def _open_door(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        if not broker.has_door or broker.config.get("tls.server.mode") == "enforcing":
            continue
        if broker.config.get("bindAddress", "").startswith(("127.", "::1")):
            continue
        public = [host for host in _hosts(broker) if _is_public(host)]
        if public:
            yield Observation(
                str(broker), f"clients reach its gRPC port at {public[0]} without TLS"
            )


def _hosts(broker: BrokerFacts) -> Iterator[str]:
    yield broker.host
    yield host_of(broker.config.get("grpcAdvertised", ""))


def _is_public(host: str) -> bool:
    try:
        return ip_address(host).is_global
    except ValueError:  # a name
        return False


def _topics_without_type(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        default = broker.config.get("grpcDefaultMessageType", "") or MIXED
        checks = broker.config.get("enableTopicMessageTypeCheck") != "false"
        if not broker.has_door or broker.is_slave or not checks or default == MIXED:
            continue
        names = [
            name
            for name, config in sorted(broker.topic_configs.items())
            if not _is_built_in(broker, name) and MESSAGE_TYPE not in config.attributes
        ]
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            yield Observation(
                str(broker),
                f"clients of gRPC may send only {default} messages to {', '.join(names[:_NAMED])}"
                f"{more}: these topics have no type",
            )


def _is_built_in(broker: BrokerFacts, topic: str) -> bool:
    """Return whether brokers make a topic by themselves."""
    return (
        is_system(topic)
        or topic in (*SYSTEM_TOPICS, broker.config.get("brokerClusterName"), broker.own_name)
        or topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        or topic.endswith(REPLY_SUFFIX)
    )


def _no_consumers(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.answering():
        count = broker.door.refused_consumers
        if broker.has_door and not broker.pops and count:
            yield Observation(
                str(broker), f"it refused {count} calls of consumers of gRPC since its start"
            )


def _clients_differ(facts: ClusterFacts) -> Iterator[Observation]:
    for group in facts.groups:
        kinds = Counter(_kind(member) for member in group.members.values())
        if len(kinds) > 1:
            told = ", ".join(f"{count} of {kind}" for kind, count in sorted(kinds.items()))
            yield Observation(group.name, f"its members are {told}")


def _kind(member: Connection) -> str:
    return f"{member.protocol} {member.language or 'in an unknown language'} {member.version_text}"


def _two_protocols(facts: ClusterFacts) -> Iterator[Observation]:
    for group in facts.groups:
        counts = Counter(member.protocol for member in group.members.values())
        if len(counts) > 1:
            told = " and ".join(f"{count} by {name}" for name, count in sorted(counts.items()))
            yield Observation(group.name, f"its members came {told}")


RULES = (
    Rule(
        "grpc-slow",
        DoctorSeverity.WARNING,
        "the port for gRPC decodes messages in plain Python, which takes some 15 times as long",
        "install a wheel of protobuf for this platform (`pip install --force-reinstall "
        "--only-binary :all: protobuf`), unset PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION, and restart "
        "the broker",
        _slow_protobuf,
    ),
    Rule(
        "grpc-open",
        DoctorSeverity.WARNING,
        "the port for gRPC takes connections without TLS at a public address: whoever records a "
        "signed call can use its account for ever",
        "set `tls.server.mode=enforcing` with a certificate (docs/security.md), or close the port "
        "to the public",
        _open_door,
    ),
    Rule(
        "topics-untyped",
        DoctorSeverity.NOTE,
        "topics have no type, and grpcDefaultMessageType lets clients of gRPC send only one type "
        "to them",
        "`rmqha-admin topic update TOPIC --type TYPE`, or `grpcDefaultMessageType=MIXED`",
        _topics_without_type,
    ),
    Rule(
        "grpc-no-consumers",
        DoctorSeverity.ERROR,
        "consumers come to a port for gRPC that serves producers only, because popEnable is false",
        "set `popEnable=true` at all brokers of the set and restart them",
        _no_consumers,
    ),
    Rule(
        "two-protocols",
        DoctorSeverity.WARNING,
        "a group consumes by gRPC and by remoting at once: members of remoting pull from the "
        "group's offset, and get messages that members of gRPC have",
        "give the programs with the SDKs of RocketMQ 5 a group of their own; docs/grpc.md",
        _two_protocols,
    ),
    Rule(
        "clients-differ",
        DoctorSeverity.NOTE,
        "members of one group use different SDKs, languages or versions",
        "if that is not meant, restart the members that still run old code; `rmqha-admin "
        "connections --count` counts the clients of all groups",
        _clients_differ,
    ),
)
