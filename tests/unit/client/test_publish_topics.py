"""The topics of a producer: their routes, borrowed ones, and those that are forgotten."""

from typing import Any

import pytest
from scripted import ROUTE, Scripted, refused

from rmq_ha.client import publish_topics
from rmq_ha.client.errors import NoRoute
from rmq_ha.client.publish_topics import PublishTopics
from rmq_ha.client.settings import ProducerConfig
from rmq_ha.wire.codes import RequestCode, ResponseCode
from rmq_ha.wire.command import RemotingCommand
from rmq_ha.wire.route_bodies import QueueRoute, TopicRoute

SMALL = TopicRoute([QueueRoute("a", 1, 1, 6)], ROUTE.brokers)
READ_ONLY = TopicRoute([QueueRoute("a", 1, 1, 4)], ROUTE.brokers)


def made(**settings: Any) -> tuple[PublishTopics, Scripted]:
    client = Scripted(**settings)
    client.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda _, request: (
        RemotingCommand(0, {}, ROUTE.encode())
        if (request.ext or {})["topic"] == "TBW102"
        else refused(ResponseCode.TOPIC_NOT_EXIST)
    )
    topics = PublishTopics(client.instance, ProducerConfig())
    topics.start()
    return topics, client


def count(topic: Any) -> int:
    return len(topic.info.queues) if topic.info else 0


def test_a_borrowed_route_follows_its_template_until_the_topic_has_its_own() -> None:
    topics, client = made()
    new = topics.get("new")
    client.wait(topics.find(new))
    assert (new.is_borrowed, count(new)) == (True, 4)
    client.instance.routes.adopt("TBW102", SMALL)
    assert (new.is_borrowed, count(new)) == (True, 1)
    client.instance.routes.adopt("other", ROUTE)
    assert count(new) == 1
    client.instance.routes.adopt("new", ROUTE)
    assert (new.is_borrowed, count(new)) == (False, 4)
    client.instance.routes.adopt("TBW102", ROUTE)
    client.instance.routes.adopt("TBW102", READ_ONLY)
    assert count(new) == 4
    client.instance.routes.adopt("new", READ_ONLY)
    assert new.info is None


def test_a_topic_that_nobody_takes_has_no_route() -> None:
    topics, client = made()
    client.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = RemotingCommand(0, {}, READ_ONLY.encode())
    with pytest.raises(NoRoute, match="takes messages"):
        client.wait(topics.find(topics.get("T")))


def test_what_is_known_already_is_taken_and_names_have_their_namespace() -> None:
    topics, client = made(namespace="N")
    client.instance.routes.adopt("N%T", ROUTE)
    known = topics.get("T")
    assert (known.name, known.shown, count(known)) == ("N%T", "T", 4)
    assert topics.get("T") is known
    client.instance.routes.adopt("T", SMALL)  # another topic: of no namespace
    assert count(known) == 4
    client.instance.routes.adopt("N%T", SMALL)
    assert count(known) == 1


def test_the_oldest_topics_are_forgotten_and_watched_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publish_topics, "_MOST_TOPICS", 2)
    topics, client = made()
    first = topics.get("a")
    topics.get("b")
    assert topics.get("a") is first
    topics.get("c")
    assert set(client.instance.routes._watched) == {"b", "c"}
    topics.stop()
    assert client.instance.routes._watched == {}
    client.instance.routes.adopt("a", ROUTE)
    assert first.info is None
