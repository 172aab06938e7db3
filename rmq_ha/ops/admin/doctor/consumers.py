"""
Rules: topics, consumer groups, dead letters, and messages that are deleted before a group has read
them.
"""

from collections import Counter
from collections.abc import Iterator

from rmq_ha.base.model.flags import PERM_WRITE
from rmq_ha.base.model.printable import counted
from rmq_ha.base.model.topics import RETRY_PREFIX, is_system
from rmq_ha.ops.admin.doctor.facts import ClusterFacts, GroupFacts, QueueFacts
from rmq_ha.ops.admin.doctor.findings import DoctorSeverity, Observation, Rule

MANY = 100_000
STUCK = 1_000
GROWING_MS = 3_600_000
_BROADCASTING = "BROADCASTING"


def _two_subscriptions(facts: ClusterFacts) -> Iterator[Observation]:
    for group in facts.groups:
        own = RETRY_PREFIX + group.name
        kinds: dict[tuple[tuple[str, str], ...], str] = {}
        for client, expressions in sorted(group.subscriptions.items()):
            kinds.setdefault(
                tuple(sorted((t, e) for t, e in expressions.items() if t != own)), client
            )
        if len(kinds) > 1:
            told = "; ".join(f"{who}: {_subscriptions_text(what)}" for what, who in kinds.items())
            yield Observation(group.name, f"its members subscribe different things ({told})")


def _subscriptions_text(subscriptions: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{topic} [{expression}]" for topic, expression in subscriptions) or "nothing"


def _not_committing(facts: ClusterFacts) -> Iterator[Observation]:
    for group in facts.groups:
        stuck = [q for q in group.queues if q.lag > 0 and q.later is not None]
        if group.members and stuck and all(q.later == q.offset for q in stuck):
            yield Observation(
                group.name,
                f"{len(group.members)} members, {sum(q.lag for q in stuck)} messages wait, and no "
                f"offset of them moved within {facts.again_s:g} s",
            )


def _no_members(facts: ClusterFacts) -> Iterator[Observation]:
    for group in facts.groups:
        if group.lag and not group.members:
            yield Observation(group.name, f"{group.lag} messages wait, and it has no member")


def _queues_text(queues: list[QueueFacts]) -> str:
    more = f" and {len(queues) - 1} queues more" if len(queues) > 1 else ""
    return f"{queues[0]}{more}"


def _unread_deleted(facts: ClusterFacts) -> Iterator[Observation]:
    for group in facts.groups:
        lost = [q for q in group.queues if 0 <= q.offset < q.begin]
        if lost:
            count = sum(q.begin - q.offset for q in lost)
            yield Observation(
                group.name, f"{count} messages were deleted unread: {_queues_text(lost)}"
            )


def _unread_soon(facts: ClusterFacts) -> Iterator[Observation]:
    for group in facts.groups:
        old = [q for q in group.queues if q.old_end is not None and _place(q) < q.old_end]
        if old:
            count = sum((q.old_end or 0) - _place(q) for q in old)
            yield Observation(
                group.name, f"{count} unread messages are nearly too old: {_queues_text(old)}"
            )


def _place(queue: QueueFacts) -> int:
    return max(queue.offset, queue.begin)


def _offsets_beyond_end(facts: ClusterFacts) -> Iterator[Observation]:
    for group in facts.groups:
        wrong = [q for q in group.queues if q.offset > q.end]
        if wrong:
            first, queues = wrong[0], _queues_text(wrong)
            text = f"its offset is {first.offset}, but the queue ends at {first.end}: {queues}"
            yield Observation(group.name, text)


def _missing(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.brokers:
        for group in broker.replication.get("missing_groups") or ():
            yield Observation(
                str(group), f"it has members at {broker}, which does not have the group"
            )


def _read_only(facts: ClusterFacts) -> Iterator[Observation]:
    for broker in facts.brokers:
        for topic, config in sorted(broker.topic_configs.items()):
            if not config.perm & PERM_WRITE and broker.is_master and not is_system(topic):
                yield Observation(
                    topic, f"producers cannot send to it at {broker}: its perm has no W"
                )


def _group_disabled(facts: ClusterFacts) -> Iterator[Observation]:
    for group in facts.groups:
        where = [name for name, enabled in group.enabled.items() if not enabled]
        if where and (group.members or group.lag):
            yield Observation(group.name, f"it may not consume at {', '.join(where)}")


def _unreadable(facts: ClusterFacts) -> Iterator[Observation]:
    for item in facts.unreadable_queues:
        yield Observation(
            item.topic,
            f"{item.messages} messages lie in queues {item.readable} to {item.needed - 1} at "
            f"{item.broker}, and consumers may read {item.readable} queues only: `rmqha-admin "
            f"topic update '{item.topic}' --on {item.broker} --read-queues {item.needed}` brings "
            "them back",
        )


def _idle(facts: ClusterFacts) -> Iterator[Observation]:
    for group in facts.groups:
        count = Counter(q.topic for q in group.queues if not q.topic.startswith(RETRY_PREFIX))
        if not count or group.model == _BROADCASTING:
            continue
        topic, most = count.most_common(1)[0]
        if len(group.members) > most:
            yield Observation(
                group.name, f"{len(group.members)} members share {most} queues of {topic}"
            )


def _far_behind(facts: ClusterFacts) -> Iterator[Observation]:
    for group in facts.groups:
        if group.lag > MANY:
            yield Observation(group.name, f"it is {group.lag} messages behind")


def _one_queue(facts: ClusterFacts) -> Iterator[Observation]:
    for group in facts.groups:
        worst = max(group.queues, key=lambda q: q.lag, default=None)
        if worst is None or worst.lag < STUCK or _siblings(group, worst) < 4:
            continue
        if worst.lag > 0.9 * sum(q.lag for q in group.queues if q.topic == worst.topic):
            yield Observation(group.name, f"{worst.lag} of its messages wait in one queue: {worst}")


def _siblings(group: GroupFacts, queue: QueueFacts) -> int:
    return sum(other.topic == queue.topic for other in group.queues)


def _dead_letters(facts: ClusterFacts, *, fresh: bool) -> Iterator[Observation]:
    for item in facts.dead_letters:
        is_fresh = 0 < facts.now_ms - item.last_ms < GROWING_MS
        if item.messages and is_fresh is fresh:
            ago = (facts.now_ms - item.last_ms) / 60_000
            when = f", the last one {ago:.0f} min ago" if item.last_ms else ""
            yield Observation(
                item.group, f"{counted(item.messages, 'dead letter')} at {item.broker}{when}"
            )


def _growing(facts: ClusterFacts) -> Iterator[Observation]:
    return _dead_letters(facts, fresh=True)


def _waiting(facts: ClusterFacts) -> Iterator[Observation]:
    return _dead_letters(facts, fresh=False)


RULES = (
    Rule(
        "two-subscriptions",
        DoctorSeverity.ERROR,
        "members of one group subscribe different topics or tags: they get messages that they "
        "did not subscribe, and messages are skipped",
        "give programs with different subscriptions different groups; restart the members that "
        "still run old code",
        _two_subscriptions,
    ),
    Rule(
        "not-committing",
        DoctorSeverity.WARNING,
        "a group has members and waiting messages, but no offset moves: a listener hangs, needs "
        "longer than doctor's second look, or never commits",
        "`rmqha-admin group show GROUP` names the members; look at their threads and logs; with "
        "--look-again 60 doctor waits longer",
        _not_committing,
    ),
    Rule(
        "no-members",
        DoctorSeverity.WARNING,
        "messages wait for a group that has no member",
        "start its programs, or `rmqha-admin group delete GROUP` if the group is not needed "
        "any more",
        _no_members,
    ),
    Rule(
        "unread-deleted",
        DoctorSeverity.ERROR,
        "messages were deleted because of their age, or because the disk was full, before a "
        "group had read them",
        "set a longer `fileReservedTime`, add disk, or add members; the group goes on by itself "
        "at the first message that is left",
        _unread_deleted,
    ),
    Rule(
        "unread-soon-deleted",
        DoctorSeverity.WARNING,
        "messages that a group has not read are older than four fifths of `fileReservedTime`",
        "if the disk has room, `rmqha-admin broker config set NAME fileReservedTime=HOURS` "
        "keeps the messages longer; see no-members and not-committing",
        _unread_soon,
    ),
    Rule(
        "offset-beyond-end",
        DoctorSeverity.ERROR,
        "a group's offset lies behind the end of its queue: the broker lost messages (an empty "
        "or older store), or the topic was made again; new messages may be skipped",
        "`rmqha-admin reset-offset TOPIC -g GROUP --to TIME`",
        _offsets_beyond_end,
    ),
    Rule(
        "group-disabled",
        DoctorSeverity.WARNING,
        "consumeEnable=false: brokers refuse the pulls of a group",
        "`rmqha-admin group update GROUP --consume` lets the group consume again",
        _group_disabled,
    ),
    Rule(
        "topic-read-only",
        DoctorSeverity.NOTE,
        "a topic may be read and not written: its producers get an error",
        "`rmqha-admin topic update TOPIC --perm RW`, unless it is to be emptied",
        _read_only,
    ),
    Rule(
        "group-missing",
        DoctorSeverity.ERROR,
        "consumers are connected in a group that the broker does not have, and does not create "
        "(autoCreateSubscriptionGroup=false): they get no messages",
        "`rmqha-admin group create GROUP`; if the group's name is wrong, correct it in the program",
        _missing,
    ),
    Rule(
        "idle-members",
        DoctorSeverity.NOTE,
        "a group has more members than queues: some members get no messages",
        "`rmqha-admin topic update TOPIC --queues N`, or run fewer members",
        _idle,
    ),
    Rule(
        "far-behind",
        DoctorSeverity.WARNING,
        "a group is more than 100,000 messages behind",
        "add members (at most as many as queues help), or make the listener faster; "
        "`rmqha-admin lag GROUP` shows each queue",
        _far_behind,
    ),
    Rule(
        "one-queue-behind",
        DoctorSeverity.WARNING,
        "nearly all messages that wait for a group are in one queue: the queue's member is "
        "stuck, or nearly all messages have one sharding key",
        "`rmqha-admin lag GROUP` names the queue; restart the member that has this queue, or "
        "choose sharding keys that spread the messages",
        _one_queue,
    ),
    Rule(
        "unreadable-queues",
        DoctorSeverity.ERROR,
        "unread messages lie in queues of a topic beyond its read queues: no consumer gets them. "
        "Brokers of 4.9 put retries there when a group's retryQueueNums is above what its retry "
        "topic has",
        "type the `rmqha-admin topic update` that the cause names: consumers find the queues "
        "within 30 s",
        _unreadable,
    ),
    Rule(
        "dlq-growing",
        DoctorSeverity.WARNING,
        "messages of a group moved to its dead letter queue within the last hour",
        "`rmqha-admin dlq show GROUP` shows them; mend the listener, then `rmqha-admin dlq "
        "resend GROUP`",
        _growing,
    ),
    Rule(
        "dlq-waiting",
        DoctorSeverity.NOTE,
        "messages wait in the dead letter queue of a group",
        "`rmqha-admin dlq show GROUP`; `rmqha-admin dlq resend GROUP` sends them again, once each",
        _waiting,
    ),
)
