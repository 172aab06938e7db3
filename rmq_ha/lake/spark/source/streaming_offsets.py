"""The progress of a stream, as Spark's checkpoints keep it, and the size of the next batch."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, ValidationError, convert

from rmq_ha.base.errors import CannotDecide
from rmq_ha.lake.spark.source.reading import QueueId

Offsets = dict[QueueId, int]
"""The next offset to read, by queue."""
_Kept = dict[str, dict[str, dict[str, Annotated[int, Meta(ge=0)]]]]


def to_json(offsets: Mapping[QueueId, int]) -> dict[str, dict[str, dict[str, int]]]:
    """
    Return offsets by topic, broker and queue, as JSON whose keys are texts.

    Equal offsets give equal text, which Spark compares to find out whether there are new messages.
    """
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        brokers = topics.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker, {})[str(queue.queue_id)] = offsets[queue]
    return topics


def from_json(value: Any) -> Offsets:
    """
    Read the result of `to_json`.

    :raises CannotDecide: the value is something else, such as a checkpoint of another source.
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
    Return how many messages a batch takes of each queue's backlog, at most `most` together.

    Every queue gets at least one, and the rest is divided by size, so that queues stay about
    equally far. If there are more queues than messages to take, the queues take turns.

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
        taken[queue] += 1  # each of these queues has a message left over
    return taken


def portions_by_bytes(
    sizes: Mapping[QueueId, int], message_bytes: Mapping[QueueId, int], most: int, turn: int
) -> Offsets:
    """
    Return portions like `portions`, limited by bytes.

    :param message_bytes: about how many bytes a message of each queue has.
    :param most: bytes; one message is taken even if it is larger.
    """
    per_message = {queue: max(1, message_bytes.get(queue, 1)) for queue in sizes}
    total = {queue: size * per_message[queue] for queue, size in sizes.items()}
    waiting = [queue for queue, size in sizes.items() if size > 0]
    if not waiting:
        return {}
    mean = max(1, sum(total[queue] for queue in waiting) // sum(sizes[queue] for queue in waiting))
    if most < len(waiting) * max(per_message[queue] for queue in waiting):
        return portions(sizes, max(1, most // mean), turn)  # too little for an exact division
    share = portions(total, most, turn)
    return {queue: min(sizes[queue], max(1, share[queue] // per_message[queue])) for queue in share}
