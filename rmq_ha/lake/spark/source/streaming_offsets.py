"""Progress of a stream, as Spark's checkpoints keep it, and how much the next batch takes."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, ValidationError, convert

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.spark.source.reading import QueueId

Offsets = dict[QueueId, int]
"""The next message to read, queue by queue."""
_Kept = dict[str, dict[str, dict[str, Annotated[int, Meta(ge=0)]]]]


def to_json(offsets: Mapping[QueueId, int]) -> dict[str, dict[str, dict[str, int]]]:
    """
    Topic, broker, queue, offset; keys are texts.

    Equal offsets give equal text: Spark compares the text, to see whether there is anything new.
    """
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        brokers = topics.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker, {})[str(queue.queue_id)] = offsets[queue]
    return topics


def from_json(value: Any) -> Offsets:
    """
    What `to_json` made.

    :raises CannotDecide: it is something else, such as a checkpoint of another source.
    """
    try:
        return {
            QueueId(topic, broker, int(number)): offset
            for topic, brokers in convert(value, _Kept).items()
            for broker, queues in brokers.items()
            for number, offset in queues.items()
        }
    except (ValidationError, ValueError) as error:
        raise CannotDecide(
            f"the checkpoint has no offsets of this source ({error}): it should be"
            ' {"topic":{"broker":{"0":23}}}; is it the checkpoint of another query?'
        ) from None


def portions(sizes: Mapping[QueueId, int], most: int, turn: int) -> Offsets:
    """
    How much of each queue's backlog a batch takes, so that together it is not more than `most`.

    Everybody gets something, the rest goes by size, so that queues stay about equally far. Where
    there are more queues than messages to take, they take turns.

    :param sizes: messages that are there, by queue.
    :param most: at least 1.
    :param turn: any number that grows from batch to batch.
    """
    waiting = sorted(queue for queue, size in sizes.items() if size > 0)
    total = sum(sizes[queue] for queue in waiting)
    if total <= most:
        return {queue: sizes[queue] for queue in waiting}
    if most < len(waiting):
        first = turn % len(waiting)
        return dict.fromkeys((waiting + waiting)[first : first + most], 1)
    left, spare = most - len(waiting), total - len(waiting)
    taken = {queue: 1 + (sizes[queue] - 1) * left // spare for queue in waiting}
    rest = most - sum(taken.values())
    left_over = {queue: (sizes[queue] - 1) * left % spare for queue in waiting}
    for queue in sorted(waiting, key=left_over.__getitem__, reverse=True)[:rest]:
        taken[queue] += 1  # fewer than have something left over, so nobody gets more than is there
    return taken


def portions_by_bytes(
    sizes: Mapping[QueueId, int], message_bytes: Mapping[QueueId, int], most: int, turn: int
) -> Offsets:
    """
    As `portions`, by bytes.

    :param message_bytes: of a message of each queue, about.
    :param most: bytes; one message of the largest is taken in any case.
    """
    per_message = {queue: max(1, message_bytes.get(queue, 1)) for queue in sizes}
    total = {queue: size * per_message[queue] for queue, size in sizes.items()}
    waiting = [queue for queue, size in sizes.items() if size > 0]
    if not waiting:
        return {}
    mean = max(1, sum(total[queue] for queue in waiting) // sum(sizes[queue] for queue in waiting))
    if most < len(waiting) * max(per_message[queue] for queue in waiting):
        return portions(sizes, max(1, most // mean), turn)  # too little to share it out exactly
    share = portions(total, most, turn)
    return {queue: min(sizes[queue], max(1, share[queue] // per_message[queue])) for queue in share}
