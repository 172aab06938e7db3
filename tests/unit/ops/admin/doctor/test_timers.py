"""Timer messages that are late or left, and clocks that are set."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from tests.unit.ops.admin.doctor.fleet import Fleet

HOUR_MS = 3_600_000


def with_timers(**ours: Any) -> Fleet:
    fleet = Fleet()
    fleet.add("a", ours={"timer_wheel_enable": True, **ours})
    fleet.make_topic()
    return fleet


def send(fleet: Fleet, *delays_s: int) -> None:
    async def work() -> None:
        config = ProducerConfig(producer_group="makers", delivery_timeout_ms=0)
        producer = Producer(fleet.client("maker"), config)
        await producer.start()
        for delay in delays_s:
            await producer.send(Message("Work", b"m", delay=timedelta(seconds=delay)))
        await producer.stop()

    fleet.wait(work())
    fleet.run(1)


def test_messages_that_are_late_because_an_operator_holds_them() -> None:
    fleet = with_timers(timer_stop_dequeue=True)
    send(fleet, 7, 900)
    fleet.is_well()
    fleet.run(60)
    told = fleet.finds("timers-late")
    assert "2 timer messages wait, and the first is late by" in told
    assert "timerStopDequeue=true" in told
    assert "timerStopDequeue=false" in fleet.fix("timers-late")
    fleet.config_set("pair", timerStopDequeue="false")
    fleet.run(3)
    fleet.is_well()


def test_messages_that_wait_where_timers_were_switched_off() -> None:
    fleet = with_timers()
    send(fleet, 900, 2000)
    fleet.is_well()
    fleet.stop("a")
    fleet.add("a", ours={"timer_wheel_enable": False})
    fleet.run(1)
    told = fleet.finds("timers-off")
    assert "2 timer messages wait in its log" in told
    fleet.stop("a")
    fleet.add("a", ours={"timer_wheel_enable": True})
    fleet.run(1)
    fleet.is_well()
    assert fleet.brokers["a"].store.timers.waiting == 2


def test_a_clock_that_is_set_while_messages_wait() -> None:
    fleet = with_timers()
    send(fleet, 7201)
    fleet.run(3)
    for host in fleet.world.hosts.values():
        host.step_clock(HOUR_MS)
    fleet.run(3)
    told = fleet.finds("clock-stepped")
    assert "its clock was set by +3600 s at" in told
    assert "come early by as much" in told
    fleet.stop("a")
    fleet.add("a", ours={"timer_wheel_enable": True})
    fleet.run(3)
    fleet.is_well()
