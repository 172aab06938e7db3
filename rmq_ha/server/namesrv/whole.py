"""Whether a registration names all topics of its broker, so that every other one was deleted."""

from collections.abc import Container

from rmq_ha.base.model.topics import OFFSET_MOVED_EVENT, SCHEDULE_TOPIC, SELF_TEST_TOPIC
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.route_bodies import ALL_TOPICS
from rmq_ha.base.wire.versions import V5_0_0

_BUILT_IN = (SELF_TEST_TOPIC, OFFSET_MOVED_EVENT, SCHEDULE_TOPIC)


def names_all_topics(request: RemotingCommand, broker_name: str, topics: Container[str]) -> bool:
    """
    A broker of ours says so. One of 4.9 names its built-in topics in a whole registration, and
    otherwise the single topic that changed.

    One of 5.x may cut a whole registration into several, and none of them tells.
    """
    said = (request.ext or {}).get(ALL_TOPICS)
    if said is not None:
        return said == "true"
    return request.version < V5_0_0 and all(name in topics for name in (*_BUILT_IN, broker_name))
