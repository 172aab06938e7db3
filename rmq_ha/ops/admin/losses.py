"""Finds messages that a change takes from consumers. `--yes` alone does not agree to that loss."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.brokers import (
    consumer_offsets,
    group_configs,
    runtime_info,
    topic_offsets,
)
from rmq_ha.ops.admin.session import NothingFound, Session
from rmq_ha.ops.admin.targets import BrokerTarget
from rmq_ha.server.store.statistics import readable_size

RETENTION = "fileReservedTime"
_HOUR_MS = 3_600_000


class WouldLose(RmqHaError):
    """
    A change takes messages from consumers, and the option that agrees to this loss was not given.
    """


def refuse_or_tell(
    session: Session, losses: Iterable[str], option: str, *, is_agreed: bool, instead: str = ""
) -> None:
    """
    Warn of the messages that will be lost, or refuse the change.

    :param losses: one text for each loss; empty texts count as none.
    :param option: the option by which the user agrees to the loss.
    :param is_agreed: whether the option was given, or the user will be asked.
    :param instead: the way to make the change without a loss.
    :raises WouldLose: messages will be lost, and the user has not agreed.
    """
    lost = [loss for loss in losses if loss]
    if not lost:
        return
    if not is_agreed:
        way = f"; {instead}" if instead else ""
        raise WouldLose(f"{'; '.join(lost)}{way}; {option} does it all the same")
    for loss in lost:
        session.output.warn(loss)


# ------------------------------------------------------------ queues that are read no longer


async def unread_messages(
    asker: Asker, target: BrokerTarget, before: TopicConfig, after: TopicConfig
) -> str:
    """
    Return a text about the messages that no consumer could reach after a change of a topic.

    :returns: the text; empty: no message would become unreachable before all groups have read it.
    """
    name = before.topic_name
    first = after.read_queue_nums
    if first >= before.read_queue_nums:
        return ""
    places = await asker.run(topic_offsets(target.address, name))
    hidden = {
        queue.queue_id: (item.min_offset, item.max_offset)
        for queue, item in places.items()
        if queue.queue_id >= first and item.max_offset > item.min_offset
    }
    if not hidden:
        return ""
    offsets = await asker.run(consumer_offsets(target.address))
    unread = dict(_unread_by_group(name, hidden, offsets))
    if unread and not any(unread.values()):
        return ""
    messages = sum(end - begin for begin, end in hidden.values())
    behind = [f"{group} has not read {count} of them" for group, count in unread.items() if count]
    verb = "holds" if len(hidden) == 1 else "hold"
    place = f"{_queues(sorted(hidden))} of {name} on {target.name or target.address}"
    where = f"{place} {verb} {messages} messages"
    if behind:
        return f"{where}: {', '.join(behind)}"
    return f"{where}, and no group has read any of them"


def _unread_by_group(
    topic: str,
    hidden: Mapping[int, tuple[int, int]],
    offsets: Mapping[str, Mapping[int, int]],
) -> Iterator[tuple[str, int]]:
    for key, places in sorted(offsets.items()):
        name, _, group = key.partition("@")
        if name == topic:
            yield (
                group,
                sum(
                    max(0, end - max(begin, places.get(q, 0))) for q, (begin, end) in hidden.items()
                ),
            )


def _queues(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"queue {numbers[0]}"
    return f"queues {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def way_without_loss(name: str, reads: int) -> str:
    """
    Return the steps by which a topic gets fewer queues after every group has read all messages.
    """
    return (
        f"the way without loss: `topic update {name} --write-queues {reads}`, wait until "
        f"`lag GROUP --topic {name}` shows that each group has read these queues, then "
        f"`topic update {name} --read-queues {reads}`"
    )


# ------------------------------------------------------------ groups that do not exist


async def must_exist(asker: Asker, brokers: Collection[BrokerTarget], group: str) -> None:
    """
    Check that a broker knows a group, by its settings or by an offset.

    :raises NothingFound: no broker knows the group.
    """
    known: set[str] = set()
    for target in brokers:
        known |= (await asker.run(group_configs(target.address))).keys()
        offsets = await asker.run(consumer_offsets(target.address))
        known |= {key.partition("@")[2] for key in offsets}
        if group in known:
            return
    close = get_close_matches(group, known, 1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise NothingFound(
        f"no broker knows the group {group}{hint}; `group list` shows all groups; with --new the "
        "group gets offsets before it ever consumed"
    )


# ------------------------------------------------------------ messages that are kept for less time


async def deleted_by_retention(
    asker: Asker, address: str, before: Mapping[str, str], changes: Mapping[str, str], now_ms: int
) -> str:
    """
    Return a text about the messages of a broker that a shorter `fileReservedTime` deletes, and
    when.

    :param before: all settings of that broker.
    :returns: the text; empty: no message is deleted earlier.
    """
    text, old = changes.get(RETENTION, "").strip(), before.get(RETENTION, "")
    if not (text.isdecimal() and old.isdecimal()) or int(text) >= int(old):
        return ""
    hours = int(text)
    info = await asker.run(runtime_info(address))
    oldest_ms, begin, end = (
        int(info.get(key, "-1"))
        for key in ("earliestMessageTimeStamp", "commitLogMinOffset", "commitLogMaxOffset")
    )
    units = "hour" if hours == 1 else "hours"
    is_known = oldest_ms > 0
    if not is_known and end - begin <= int(before.get("mappedFileSizeCommitLog", 1 << 30)):
        return ""  # the only file written so far is the last one, which is never deleted
    age = (now_ms - oldest_ms) / _HOUR_MS
    if is_known and age <= hours:
        return ""
    if not is_known:
        return (
            f"{address}: {RETENTION}={hours} deletes the messages that are older than {hours} "
            f"{units}; the broker does not say how old its oldest message is"
        )
    size = readable_size(int((end - begin) * (age - hours) / age))
    when = changes.get("deleteWhen", before.get("deleteWhen", "04"))
    return (
        f"{address}: {RETENTION}={hours} deletes the messages of {age - hours:.0f} hours, all that "
        f"are older than {hours} {units}: about {size} of the log, "
        f"at {when} o'clock (deleteWhen), or earlier if the disk fills up, whether or not groups "
        "have read them"
    )
