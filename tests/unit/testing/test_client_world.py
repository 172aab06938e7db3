"""A world for tests of applications: its time, its faults, and that a seed decides all of it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from rmq_ha.client import Message, SendStatus
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.testing.client_world import ClientWorld
from rmq_ha.testing.clock import SimClock
from rmq_ha.testing.sim_loop import SimLoop


def bodies(world: ClientWorld, topic: str = "T") -> list[bytes]:
    return sorted(message.body for message in world.messages(topic))


async def sends(world: ClientWorld, *texts: bytes) -> None:
    async with world.connect() as client:
        producer = await client.producer()
        await asyncio.gather(*[producer.send(Message("T", text)) for text in texts])


def test_what_was_sent_is_there_in_all_queues_and_lengths() -> None:
    with ClientWorld() as world:
        assert world.new_topic("T", 3) == "T"
        texts = [b"%02d" % number * 200 for number in range(90)]
        world.run(sends(world, *texts))
        assert bodies(world) == texts
        assert {message.queue_id for message in world.messages("T")} == {0, 1, 2}
        assert world.messages("nobody's") == []


def test_time_is_wound_by_seconds_timedeltas_and_sleeps() -> None:
    with ClientWorld() as world:
        clock = world.world.clock
        start = clock.seconds()
        world.wind(10)
        world.wind(timedelta(minutes=1))
        world.run(asyncio.sleep(30))
        assert clock.seconds() == pytest.approx(start + 100, abs=1e-3)


def test_waits_end() -> None:
    with ClientWorld() as world:
        assert world.wait(succeed(7)) == 7
        with pytest.raises(TimeoutError, match="no outcome within 60 simulated seconds"):
            world.wait(Deferred(), 60)
        with pytest.raises(ZeroDivisionError):
            world.wait(fail(ZeroDivisionError()))
        with pytest.raises(TimeoutError):
            world.run(asyncio.sleep(61), 60)


def test_a_client_belongs_to_the_loop_of_its_world() -> None:
    with ClientWorld() as world:

        async def story() -> None:
            world.connect()

        with pytest.raises(RuntimeError, match=r"use `world\.run"):
            asyncio.run(story())


def test_name_servers_of_elsewhere_are_replaced_and_other_settings_kept() -> None:
    with ClientWorld() as world:
        settings = ClientConfig(namesrv_addr="example.org:9876", instance_name="shop")
        client = world.client(settings)
        assert client.settings.namesrv_addr == world.namesrv_addr
        assert (
            client.settings.instance_name,
            client.settings.persist_consumer_offset_interval_ms,
        ) == (*("shop", 5_000),)
        other = world.client("example.org:9876")
        assert other.settings.process != client.settings.process


def test_what_a_timer_raises_ends_the_world_badly() -> None:
    world = ClientWorld()
    world.world.hosts["broker-1"].clock.callLater(1, int, "no number")
    world.wind(2)
    with pytest.raises(ValueError, match="no number"):
        world.close()


def course(seed: int) -> tuple[Any, ...]:
    """How a fail-over went, to the last event."""
    with ClientWorld(seed, pair=True) as world:
        outcomes: list[Any] = []

        async def story() -> None:
            async with world.connect() as client:
                producer = await client.producer()
                await producer.send(Message("T", b"before"))
                await asyncio.sleep(1)
                world.kill_master()
                assert bodies(world) == [b"before"]
                later = asyncio.ensure_future(producer.send(Message("T", b"after")))
                await asyncio.sleep(5)
                assert not later.done()
                world.fail_over()
                outcomes.append(await later)
                world.rejoin()
                await asyncio.sleep(8)
                world.fail_over()
                await asyncio.sleep(8)

        world.run(story())
        assert outcomes[0].send_status is SendStatus.SEND_OK
        assert bodies(world) == [b"after", b"before"]
        clock: Any = world.world.clock
        return clock.seconds(), clock._sequence, outcomes[0].msg_id


def test_a_seed_decides_over_everything() -> None:
    assert course(1) == course(1)
    assert course(1) != course(2)


IN_A_PROCESS_OF_ITS_OWN = """
import asyncio
from rmq_ha.client import Message
from rmq_ha.testing.client_world import ClientWorld

async def story(world):
    async with world.connect() as client:
        producer = await client.producer()
        for number in range(6):
            await producer.send(Message(f"T{number}", b"x"))
        await asyncio.sleep(65)

with ClientWorld(1) as world:
    world.run(story(world))
    print(world.world.trace.digest)
"""


@pytest.mark.trials
def test_a_seed_decides_in_every_process_whatever_its_order_of_sets() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", IN_A_PROCESS_OF_ITS_OWN],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


@pytest.mark.parametrize("come_back", [ClientWorld.start_master, ClientWorld.resume])
def test_a_master_that_comes_back_takes_what_waited(
    come_back: Callable[[ClientWorld], None],
) -> None:
    with ClientWorld() as world:

        async def story() -> None:
            away = ClientWorld.pause if come_back is ClientWorld.resume else ClientWorld.kill_master
            async with world.connect() as client:
                producer = await client.producer()
                await producer.send(Message("T", b"w"))
                away(world)
                away(world)
                later = asyncio.ensure_future(producer.send(Message("T", b"x")))
                await asyncio.sleep(2)
                assert not later.done()
                come_back(world)
                await later

        world.run(story())
        assert bodies(world) == [b"w", b"x"]


def test_without_a_slave_nobody_takes_over() -> None:
    with ClientWorld() as world, pytest.raises(RuntimeError, match="pair=True"):
        world.fail_over()


def test_the_loop_runs_on_the_clock_alone() -> None:
    clock = SimClock()
    loop = SimLoop(clock)
    seen: list[tuple[str, float]] = []

    async def story() -> Any:
        clock.call_at(7, lambda: seen.append(("event", loop.time())))
        await asyncio.sleep(5)
        seen.append(("slept", loop.time()))
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)
        await asyncio.sleep(5)
        return await asyncio.to_thread(lambda: loop.time())

    assert loop.run_until_complete(story()) == pytest.approx(10)
    assert [(name, round(when, 3)) for name, when in seen] == [("slept", 5), ("event", 7)]
    with pytest.raises(RuntimeError, match="nothing will ever happen"):
        loop.run_until_complete(loop.create_future())
    loop.close()
