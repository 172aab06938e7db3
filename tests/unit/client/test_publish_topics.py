"""The topics of a producer: their routes, borrowed ones, and those that are forgotten."""

from typing import Any

import pytest
from msgspec.structs import replace

from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.route_bodies import QueueRoute, TopicRoute
from rmq_ha.client.rules.errors import NoRoute
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send import publish_topics
from rmq_ha.client.send.publish_topics import PublishTopics
from tests.unit.client.scripted import ROUTE, Scripted, refused

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
    new, unknown, other = topics.get("new"), topics.get("unknown"), topics.get("other")
    client.wait(topics.find(new))
    client.wait(topics.find(other))
    assert (new.is_borrowed, count(new)) == (True, 4)
    client.instance.routes.adopt("TBW102", SMALL)
    assert (new.is_borrowed, count(new), count(other)) == (True, 1, 1)
    assert count(unknown) == 0  # it may have a route of its own
    client.instance.routes.adopt("else", ROUTE)
    assert count(new) == 1
    client.instance.routes.adopt("new", ROUTE)
    assert (new.is_borrowed, count(new)) == (False, 4)
    client.instance.routes.adopt("TBW102", ROUTE)
    client.instance.routes.adopt("TBW102", READ_ONLY)
    assert count(new) == 4
    client.instance.routes.adopt("new", READ_ONLY)
    assert new.info is None


@pytest.mark.parametrize(
    ("route", "words"),
    [
        (READ_ONLY, "may only be read.*topic update T --perm RW"),
        (replace(ROUTE, queues=[replace(ROUTE.queues[0], write_queue_nums=0)]), "no write queues"),
        (replace(ROUTE, brokers=[]), "no broker of it takes messages at the moment"),
    ],
)
def test_a_topic_that_nobody_takes_has_no_route(route: TopicRoute, words: str) -> None:
    topics, client = made()
    client.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = RemotingCommand(0, {}, route.encode())
    with pytest.raises(NoRoute, match=words) as caught:
        client.wait(topics.find(topics.get("T")))
    assert caught.value.retriable


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


def test_a_route_is_followed_by_whichever_name_its_topic_is_called() -> None:
    """With its namespace too: else its messages go to brokers that are gone."""
    topics, client = made(namespace="N")
    names = [topics.get("T"), topics.get("N%T")]
    for route, queues in ((ROUTE, 4), (SMALL, 1)):
        client.instance.routes.adopt("N%T", route)
        assert [count(known) for known in names] == [queues] * 2


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
    client.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = RemotingCommand(0, {}, SMALL.encode())
    client.wait(topics.find(first))  # somebody still sends to it
    assert count(first) == 1
    topics.stop()
    assert client.instance.routes._watched == {}
    client.instance.routes.adopt("a", ROUTE)
    assert count(first) == 1


def test_a_producer_that_is_gone_follows_no_routes() -> None:
    """A client that goes on would keep it, and all its topics, for ever."""
    topics, client = made()
    known = topics.get("T")
    topics.stop()
    client.instance.routes.adopt("T", ROUTE)
    assert known.info is None
    assert client.instance.routes._watchers == [client.instance._route_changed]


def test_a_route_that_leads_nowhere_is_asked_for_again_and_not_too_often() -> None:
    """By every send that fails: a name server would have thousands of questions a second."""
    topics, client = made()
    known = topics.get("TBW102")
    asked = []
    for now in (100.0, 100.25, 100.0 + publish_topics.LOOK_AGAIN_S):
        topics.look_again(known, now)
        asked.append(len(client.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)))
    assert asked == [1, 1, 2]


def test_of_a_route_that_is_borrowed_the_lender_is_asked() -> None:
    """The topic itself has none: its queues would stay those of a broker that is gone."""
    topics, client = made()
    new = topics.get("new")
    client.wait(topics.find(new))
    asked = []
    for now in (100.0, 200.0):
        client.asked.clear()
        topics.look_again(new, now)
        asked += [ext["topic"] for _, ext in client.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)]
        client.instance.routes.adopt("new", ROUTE)
    assert asked == ["TBW102", "new"]
