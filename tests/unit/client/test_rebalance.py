"""Shares of queues: as the Java strategies answered, and what must hold for all of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.rebalance.changes import compare, group_by_topic, share_of, sort_queues
from rmq_ha.client.rebalance.consistent_hash import AllocateConsistentHash, HashRing
from rmq_ha.client.rebalance.machine_rooms import AllocateByMachineRoom, AllocateMachineRoomNearby
from rmq_ha.client.rebalance.strategies import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
)

# Recorded with tests/interop/java/RebalanceVectors.java
VECTORS = json.loads(
    (Path(__file__).parents[2] / "vectors/client/rebalance.json").read_text("utf-8")
)


def nearby(strategy: Any) -> AllocateMachineRoomNearby:
    return AllocateMachineRoomNearby(
        strategy,
        lambda queue: queue.broker_name.split("@")[0],
        lambda client: client.split("-")[0],
    )


STRATEGIES = [
    (AllocateAveragely(), "AVG"),
    (AllocateAveragelyByCircle(), "AVG_BY_CIRCLE"),
    (AllocateConsistentHash(), "CONSISTENT_HASH"),
    (AllocateConsistentHash(3), "CONSISTENT_HASH-3"),
    (AllocateByMachineRoom(["r0", "r1"]), "MACHINE_ROOM"),
    (nearby(AllocateAveragely()), "MACHINE_ROOM_NEARBY-AVG"),
    (nearby(AllocateAveragelyByCircle()), "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE"),
]
COMPLETE = [
    AllocateAveragely(),
    AllocateAveragelyByCircle(),
    AllocateConsistentHash(),
    nearby(AllocateAveragely()),
]
topics = st.sampled_from(["T", "%RETRY%g", "Tópic"])
queue_sets = st.sets(
    st.builds(
        MessageQueue,
        st.just("T"),
        st.sampled_from(["r0@a", "r1@b", "r2@c"]),
        st.integers(0, 20),
    ),
    min_size=1,
)
client_sets = st.sets(
    st.builds("r{}-{}".format, st.integers(0, 3), st.integers(0, 99)), min_size=1, max_size=12
)


@pytest.mark.parametrize(("strategy", "name"), STRATEGIES, ids=[name for _, name in STRATEGIES])
def test_every_share_is_java_s(strategy: Any, name: str) -> None:
    for case in VECTORS:
        queues = [MessageQueue(*queue) for queue in case["queues"]]
        assert sort_queues(queues) == queues
        for client, positions in case["results"][name].items():
            share = share_of(strategy, "g", client, queues, case["clients"])
            assert share == [queues[position] for position in positions]


@given(strategy=st.sampled_from(COMPLETE), queues=queue_sets, clients=client_sets)
def test_every_queue_has_one_owner(strategy: Any, queues: Any, clients: Any) -> None:
    shares = [share_of(strategy, "g", client, queues, clients) for client in clients]
    assert sort_queues([queue for share in shares for queue in share]) == sort_queues(queues)


@given(queues=queue_sets, clients=client_sets, leaver=st.integers(0, 11))
def test_consistent_hash_moves_only_the_queues_of_the_one_who_left(
    queues: Any, clients: Any, leaver: int
) -> None:
    strategy = AllocateConsistentHash()
    gone = sorted(clients)[leaver % len(clients)]
    rest = clients - {gone}
    for client in rest:
        before = set(share_of(strategy, "g", client, queues, clients))
        assert before <= set(share_of(strategy, "g", client, queues, rest))


def test_configured_queues_are_taken_whoever_else_is_there() -> None:
    queues = [MessageQueue("T", "b", 7)]
    assert AllocateByConfig(queues).allocate("g", "a", [], []) == queues


@pytest.mark.parametrize("strategy", [strategy for strategy, _ in STRATEGIES])
def test_nothing_to_share_out_is_an_error_and_a_stranger_gets_nothing(strategy: Any) -> None:
    queue = MessageQueue("T", "r0@b", 0)
    for queues, clients, own in (([], ["r0-a"], "r0-a"), ([queue], [], "x"), ([queue], ["a"], "")):
        with pytest.raises(ValueError, match=r"empty|no queues|no members"):
            strategy.allocate("g", own, queues, clients)
    assert strategy.allocate("g", "r0-x", [queue], ["r0-a"]) == []


@pytest.mark.parametrize("rooms", [("", "here"), ("here", "")])
def test_an_unknown_room_is_an_error(rooms: tuple[str, str]) -> None:
    strategy = AllocateMachineRoomNearby(
        AllocateAveragely(), lambda _: rooms[0], lambda _: rooms[1]
    )
    with pytest.raises(ValueError, match="room"):
        strategy.allocate("g", "a", [MessageQueue("T", "b", 0)], ["a"])


def test_a_ring_without_nodes_routes_nowhere() -> None:
    assert HashRing([], 10).node_of("key") is None
    with pytest.raises(ValueError, match="negative"):
        AllocateConsistentHash(-1)


@given(
    owned=st.sets(st.builds(MessageQueue, topics, st.just("b"), st.integers(0, 9))),
    share=st.lists(st.builds(MessageQueue, st.just("T"), st.just("b"), st.integers(0, 9))),
)
def test_a_step_leads_from_what_is_owned_to_the_share_and_leaves_other_topics(
    owned: Any, share: Any
) -> None:
    grouped = group_by_topic(owned)
    assert all(queue.topic == topic for topic, queues in grouped.items() for queue in queues)
    step = compare(grouped.get("T", ()), share)
    others = {queue for queue in owned if queue.topic != "T"}
    assert (owned - set(step.removed)) | set(step.added) == set(share) | others
    assert not set(step.added) & owned
    assert len(step.added) == len(set(step.added))


@pytest.mark.parametrize(
    ("broker_name", "is_near"),
    [
        ("r0@a", True),
        ("r9@a", False),
        ("r0", False),
        ("r0@", False),
        ("r0@a@b", False),
        ("r0@a@", True),
        ("@r0", False),
    ],
)
def test_a_broker_stands_in_the_room_before_its_at(broker_name: str, *, is_near: bool) -> None:
    queue = MessageQueue("T", broker_name, 0)
    share = AllocateByMachineRoom(["r0", "r1"]).allocate("g", "me", [queue], ["me"])
    assert share == ([queue] if is_near else [])


def test_near_queues_are_shared_out_in_rows_and_the_rest_to_the_first_members() -> None:
    queues = [MessageQueue("T", "r0@a", number) for number in range(8)]
    strategy = AllocateByMachineRoom(["r0"])
    shares = [
        strategy.allocate("g", member, queues, ["m1", "m2", "m3"]) for member in ("m1", "m2", "m3")
    ]
    assert [[queue.queue_id for queue in share] for share in shares] == [
        *([0, 1, 6], [2, 3, 7], [4, 5])
    ]
