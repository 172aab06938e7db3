"""Sends messages with few requests."""

from rmq_ha.base.errors import RemotingError, RmqHaError
from rmq_ha.base.model.topics import RETRY_PREFIX
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.blocking import BlockingClient
from rmq_ha.client.rules.errors import MQClientError, NoRoute
from rmq_ha.client.rules.messages import Message, SendResult, SendStatus
from rmq_ha.client.rules.queue_choice import select_by_hash
from rmq_ha.lake.spark.source.sink_options import BY_KEY, SinkOptions
from rmq_ha.lake.spark.source.sink_rows import QueueTarget, SinkTask

_Key = tuple[str, QueueTarget | None]


class NotSent(RmqHaError):
    """A task's rows could not be sent; some of them may have been sent."""


class Outbox:
    """Gathers the messages of a task by topic and queue; those of one queue keep their order."""

    def __init__(self, client: BlockingClient, options: SinkOptions, place: SinkTask) -> None:
        self._client = client
        self._options = options
        self._place = place
        self._waiting: dict[_Key, list[Message]] = {}
        self._bytes: dict[_Key, int] = {}
        self._all_bytes = 0
        self._queues: dict[tuple[str, QueueTarget], MessageQueue] = {}
        self._choices: dict[str, list[MessageQueue]] = {}

    def put(self, message: Message, target: QueueTarget | None) -> None:
        """
        Queue a message to be sent soon.

        :raises NotSent: this message, or one before it, cannot be sent.
        """
        if target is None and message.keys and self._options.spread == BY_KEY:
            target = self._by_key(message)
        key = message.topic, target
        if message.delay_time_level > 0 or message.topic.startswith(RETRY_PREFIX):
            self._send([message], key)  # brokers refuse these in a batch
            return
        waiting = self._waiting.setdefault(key, [])
        waiting.append(message)
        size = self._bytes[key] = self._bytes.get(key, 0) + len(message.body)
        self._all_bytes += len(message.body)
        if len(waiting) >= self._options.batch_rows or size >= self._options.batch_bytes:
            self._flush(key)
        elif self._all_bytes >= 8 * self._options.batch_bytes or len(self._waiting) > 1000:
            self.flush()

    def flush(self) -> None:
        """Send all waiting messages; raises like `put`."""
        for key in list(self._waiting):
            self._flush(key)

    def _flush(self, key: _Key) -> None:
        messages = self._waiting.pop(key)
        self._all_bytes -= self._bytes.pop(key)
        self._send(messages, key)

    def _send(self, messages: list[Message], key: _Key) -> None:
        """Send messages of one topic and queue in one request, or raise NotSent."""
        topic, target = key
        try:
            queue = None if target is None else self._queue(topic, target)
            if len(messages) == 1:
                results = [self._client.send(messages[0], queue=queue)]
            else:
                results = self._client.send_batch(messages, queue=queue)
            self._check(results)
        except (MQClientError, RemotingError) as error:
            raise NotSent(
                f"{len(messages)} messages of partition {self._place.partition} could not be sent"
                f" to {topic}: {error}"
            ) from None

    def _check(self, results: list[SendResult]) -> None:
        """With `requireSendOk` raise MQClientError if a message was not flushed or replicated."""
        for result in results if self._options.require_send_ok else ():
            if result.send_status is not SendStatus.SEND_OK:
                raise MQClientError(
                    f"{result.message_queue.broker_name} stored them, but answered"
                    f" {result.send_status.name}: a crash may lose them, and requireSendOk is set"
                )

    def _by_key(self, message: Message) -> QueueTarget | None:
        """Choose a queue as Java's SelectMessageQueueByHash does; None: the topic is not known."""
        queues = self._choices.get(message.topic)
        if queues is None:
            try:
                queues = self._client.publish_queues(message.topic)
            except NoRoute:
                return None
            self._choices[message.topic] = queues
        if not queues:
            return None
        queue = select_by_hash(queues, message, message.keys)
        return QueueTarget(queue.broker_name, queue.queue_id)

    def _queue(self, topic: str, target: QueueTarget) -> MessageQueue:
        """Return the queue that a row asked for, or raise MQClientError."""
        queue = self._queues.get((topic, target))
        if queue is None:
            queues = self._client.publish_queues(topic)
            fit = [queue for queue in queues if _matches_target(queue, target)]
            if not fit:
                raise MQClientError(
                    f"there is no queue {target.queue_id}"
                    + (f" on {target.broker}" if target.broker else "")
                    + f"; there are {', '.join(map(_queue_text, queues)) or 'none'}. Drop the "
                    "columns queueId and brokerName to have queues chosen"
                )
            queue = self._queues[topic, target] = min(fit)
        return queue


def _matches_target(queue: MessageQueue, target: QueueTarget) -> bool:
    return queue.queue_id == target.queue_id and target.broker in ("", queue.broker_name)


def _queue_text(queue: MessageQueue) -> str:
    return f"{queue.broker_name}/{queue.queue_id}"
