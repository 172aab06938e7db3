"""The order in which a pop looks at queues, those of its retry topic among them.

Spec: pop.md, section 3.
"""

from collections.abc import Callable, Iterator
from itertools import count
from random import Random

from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.pop_topics import retry_topic
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.server.broker.pop_hold import ALL_QUEUES
from rmq_ha.server.pop.face import PopQueue

_PERCENT = 100


class PopQueues:
    """
    Names the queues for a pop, in a random order that gives each queue its turn.

    One pop in five looks into the retry topic first, so that retries are not starved by a topic
    that always has messages; all others look there last (`popFromRetryProbability`). An orderly pop
    has no retry topic.

    :param find: returns a topic of this broker by its name; None if there is none.
    """

    def __init__(
        self, config: RmqHaConfig, find: Callable[[str], TopicConfig | None], random: Random
    ) -> None:
        self._config = config
        self._find = find
        self._random = random
        self._turns = count()

    def queues_of(
        self,
        group: str,
        topic: TopicConfig,
        queue_id: int,
        message_filter: IMessageFilter | None,
        *,
        is_orderly: bool,
    ) -> list[PopQueue]:
        """
        Return the queues that a pop may take messages from, in the order of its looks.

        :param queue_id: `ALL_QUEUES`, or one queue of the topic.
        :param message_filter: for the topic; messages of the retry topic passed it before.
        """
        draw = self._random.randrange(_PERCENT)
        name, number = topic.topic_name, topic.read_queue_nums
        numbers = (
            [(draw + turn) % number for turn in range(number)]
            if queue_id == ALL_QUEUES
            else [queue_id]
        )
        queues = [PopQueue(name, item, message_filter) for item in numbers]
        if is_orderly:
            return queues
        retries = list(self._retries(group, name))
        is_first = draw < self._config.pop_from_retry_probability
        return retries + queues if is_first else queues + retries

    def _retries(self, group: str, topic: str) -> Iterator[PopQueue]:
        """
        Name the queues of one retry topic of the group and topic. A group may have two, as
        RocketMQ has named them in two ways; an answer has messages of one of them at most.

        If both are read (`retrieveMessageFromPopRetryTopicV1`), pops take turns.
        """
        is_v2 = self._config.enable_retry_topic_v2
        if is_v2 and self._config.retrieve_message_from_pop_retry_topic_v1:
            is_v2 = next(self._turns) % 2 == 0
        config = self._find(retry_topic(group, topic, v2=is_v2))
        if config is not None:
            for queue_id in range(config.read_queue_nums):
                yield PopQueue(config.topic_name, queue_id)
