"""Rules: messages that were popped and not acknowledged, and brokers that serve pops."""

from collections.abc import Iterator

from rmq_ha.base.wire.pop_reports import QueueOut
from rmq_ha.ops.admin.doctor.facts import ClusterFacts, PopFacts
from rmq_ha.ops.admin.doctor.findings import DoctorSeverity, Observation, Rule

LONG_S = 3600
PINNED_S = 600
NEARLY = 0.8


def _out_long(facts: ClusterFacts) -> Iterator[Observation]:
    for item in facts.pops:
        out = [queue for queue in item.report.queues if queue.in_flight]
        oldest = min(out, key=lambda queue: queue.oldest_ms, default=None)
        if oldest is None or item.report.now_ms - oldest.oldest_ms <= LONG_S * 1000:
            continue
        minutes = (item.report.now_ms - oldest.oldest_ms) // 60_000
        count = sum(queue.in_flight for queue in out)
        client = f", with {oldest.client}" if oldest.client else ""
        yield Observation(
            item.group,
            f"a message of {_place(item, oldest)} is out for {minutes} min{client}; {count} of its "
            "messages are out in all",
        )


def _overtaken_messages(facts: ClusterFacts) -> Iterator[Observation]:
    for item in facts.pops:
        pinned = [queue for queue in item.report.queues if _is_pinned(facts, item, queue)]
        if pinned:
            first = pinned[0]
            minutes = (item.report.now_ms - first.waits_since_ms) // 60_000
            yield Observation(
                item.group,
                f"{first.acked_ahead} messages are acknowledged behind message {first.committed} "
                f"of {_place(item, first)}, which is {minutes} min old and still out",
            )


def _is_pinned(facts: ClusterFacts, item: PopFacts, queue: QueueOut) -> bool:
    """
    Return whether messages are acknowledged behind an old one that is out, and the group's offset
    was the same at both looks.
    """
    if not queue.acked_ahead or not queue.waits_since_ms:
        return False
    if item.report.now_ms - queue.waits_since_ms <= PINNED_S * 1000:
        return False
    place = item.broker, queue.topic, queue.queue_id
    return any(
        (known.broker, known.topic, known.queue) == place and known.later == queue.committed
        for group in facts.groups
        if group.name == item.group
        for known in group.queues
    )


def _near_limit(facts: ClusterFacts) -> Iterator[Observation]:
    for item in facts.pops:
        fullest = max(item.report.queues, key=lambda queue: queue.in_flight, default=None)
        if fullest is not None and item.most and fullest.in_flight >= NEARLY * item.most:
            yield Observation(
                item.group,
                f"{fullest.in_flight} messages of {_place(item, fullest)} are out, of at most "
                f"{item.most}",
            )


def _place(item: PopFacts, queue: QueueOut) -> str:
    return f"queue {queue.queue_id} of {queue.topic} at {item.broker}"


def _pops_off(facts: ClusterFacts) -> Iterator[Observation]:
    popping = {(*pair, broker.cluster) for broker in facts.answering() for pair in broker.popping}
    for topic, group, cluster in sorted(popping):
        where = [
            str(broker)
            for broker in facts.answering()
            if (broker.is_ours and not broker.pops and broker.cluster == cluster)
            and topic in (broker.topics or ())
        ]
        if where:
            yield Observation(
                group, f"it pops {topic}, and popEnable is false at {', '.join(where)}"
            )


def _mixed_set(facts: ClusterFacts) -> Iterator[Observation]:
    for name, members in facts.pairs():
        answering = [broker for broker in members if broker.answers]
        if not any(broker.pops for broker in answering):
            continue
        if java := [broker.address for broker in answering if not broker.is_ours]:
            yield Observation(
                name, f"{', '.join(java)} runs RocketMQ, and does not know which messages are out"
            )
        if off := [item.address for item in answering if item.is_ours and not item.pops]:
            yield Observation(name, f"popEnable is false at {', '.join(off)}, and true elsewhere")


RULES = (
    Rule(
        "pop-out-long",
        DoctorSeverity.WARNING,
        "a popped message is out for more than an hour and not acknowledged: a consumer hangs, or "
        "asked for a very long invisible time",
        "`rmqha-admin group inflight GROUP` names the client and when the message comes again; "
        "look at this client's threads and log",
        _out_long,
    ),
    Rule(
        "pop-pinned",
        DoctorSeverity.WARNING,
        "a group acknowledges messages behind an old one that it does not acknowledge: its offset "
        "stays there, and after popInflightMessageThreshold messages the queue gives no more",
        "`rmqha-admin group inflight GROUP` names the client; stop the client, and its message "
        "comes again when its lease ends",
        _overtaken_messages,
    ),
    Rule(
        "pop-near-limit",
        DoctorSeverity.WARNING,
        "four fifths of the messages that may be out of one queue are out: pops beyond get code "
        "209",
        "look for consumers that do not acknowledge (`rmqha-admin group inflight GROUP`), or raise "
        "`popInflightMessageThreshold`",
        _near_limit,
    ),
    Rule(
        "pops-off",
        DoctorSeverity.ERROR,
        "a group's mode is POP (mqadmin setConsumeMode), and a broker of its topic has "
        "popEnable=false: the group gets no messages from this broker",
        "set `popEnable=true` in the broker's file and restart the broker, or set the mode PULL "
        "with `mqadmin setConsumeMode`",
        _pops_off,
    ),
    Rule(
        "pop-set-mixed",
        DoctorSeverity.WARNING,
        "a set serves pops, and one of its brokers does not know which messages are out: if this "
        "broker becomes the master, acknowledged messages come again",
        "set `popEnable=true` at all brokers of the set; replace a broker of RocketMQ by one of "
        "rmq-ha",
        _mixed_set,
    ),
)
