"""A simple consumer for programs without an event loop."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar, Unpack

from rmq_ha.base.model.subscription import SUB_ALL
from rmq_ha.client.aio import Client, SimpleConsumer
from rmq_ha.client.blocking_part import BlockingPart
from rmq_ha.client.rules.consumer_settings import SimpleConsumerConfig
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.client.rules.options import SimpleConsumerOptions, settings_of
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.client.rules.subscriptions import MessageSelector

T = TypeVar("T")


class BlockingSimpleConsumer(BlockingPart):
    """
    A member of a group that asks for messages when it wants some, and answers each by itself::

        consumer = BlockingSimpleConsumer("payments", "a:9876;b:9876")
        consumer.subscribe("Orders", "paid")
        with consumer:
            for message in consumer.receive(16, timedelta(seconds=30)):
                handle(message)
                consumer.ack(message)

    Any number of threads may call it at a time. See `rmq_ha.client.SimpleConsumer`.

    :ivar consumer_group: the group's name, as the application gave it.
    """

    def __init__(
        self,
        consumer_group: str,
        settings: ClientConfig | str = "",
        config: SimpleConsumerConfig | None = None,
        **options: Unpack[SimpleConsumerOptions],
    ) -> None:
        """
        :param settings: settings, or only the name servers as `host:port;host:port`.
        :param options: settings of `SimpleConsumerConfig`; they override those of `config`.
        """
        super().__init__(consumer_group, settings)
        self.consumer_group = consumer_group
        self._config = settings_of(SimpleConsumerConfig, config, options).checked()
        self._subscriptions: dict[str, str | MessageSelector | None] = {}
        self._consumer: SimpleConsumer | None = None

    def subscribe(self, topic: str, expression: str | MessageSelector | None = SUB_ALL) -> None:
        """Receive messages of a topic, or change which of them; also after `start`."""
        self._subscriptions[topic] = expression
        if self._thread is not None:
            self._run(self._tell(lambda consumer: consumer.subscribe(topic, expression)))

    def unsubscribe(self, topic: str) -> None:
        """Receive no more messages of a topic; messages that are out can be acknowledged still."""
        self._subscriptions.pop(topic, None)
        if self._thread is not None:
            self._run(self._tell(lambda consumer: consumer.unsubscribe(topic)))

    def receive(self, max_message_num: int, invisible_duration: timedelta) -> list[MessageExt]:
        """
        Receive messages: those that are there, or the first that come within `await_duration`.

        :param max_message_num: most messages, 1 to 32.
        :param invisible_duration: how long the messages are only yours; see
            `rmq_ha.client.SimpleConsumer.receive`, also for the errors.
        """
        return self._ask(lambda consumer: consumer.receive(max_message_num, invisible_duration))

    def ack(self, message: MessageExt) -> None:
        """
        Answer that a message is consumed; the group never gets it again.

        :raises ReceiptExpired: the message's time was over: it comes again.
        """
        self._ask(lambda consumer: consumer.ack(message))

    def ack_all(self, messages: Sequence[MessageExt]) -> None:
        """
        Answer that messages are consumed, by one request to each broker. Brokers skip messages
        whose time was over, without an error.

        :raises ReceiptExpired: the time of all messages of a broker was over.
        """
        self._ask(lambda consumer: consumer.ack_all(messages))

    def change_invisible_duration(self, message: MessageExt, invisible_duration: timedelta) -> None:
        """
        Have a message come again at another time, counted from now.

        :raises ReceiptExpired: the message's time was over: it comes again.
        """
        self._ask(lambda consumer: consumer.change_invisible_duration(message, invisible_duration))

    async def _make(self, client: Client) -> None:
        consumer = client.simple_consumer(self.consumer_group, self._config)
        for topic, expression in self._subscriptions.items():
            consumer.subscribe(topic, expression)
        await consumer.start()
        self._consumer = consumer

    def _ask(self, question: Callable[[SimpleConsumer], Awaitable[T]]) -> T:
        return self._run(self._await(question))

    async def _await(self, question: Callable[[SimpleConsumer], Awaitable[T]]) -> T:
        assert self._consumer is not None
        return await question(self._consumer)

    async def _tell(self, change: Callable[[SimpleConsumer], None]) -> None:
        assert self._consumer is not None
        change(self._consumer)
