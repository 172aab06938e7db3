"""A loop in a thread, for those who have none."""

import asyncio
import threading

import pytest

from rmq_ha.base.host.loop_thread import LoopThread, ThreadStopped


async def where():
    return threading.current_thread().name


async def fail():
    raise KeyError("it")


def test_coroutines_run_there_and_what_comes_out_comes_back():
    thread = LoopThread("there")
    assert thread.is_ours
    assert [thread.run(where()) for _ in range(2)] == ["there", "there"]
    with pytest.raises(KeyError, match="it"):
        thread.run(fail())
    thread.stop()
    thread.stop()
    assert "there" not in [one.name for one in threading.enumerate()]
    with pytest.raises(ThreadStopped):
        thread.run(where())


def test_a_stop_ends_those_who_wait():
    """They are told, and do not wait for ever."""
    thread, begun, told = LoopThread("there"), threading.Event(), []

    async def wait():
        begun.set()
        await asyncio.Event().wait()

    def ask():
        try:
            thread.run(wait())
        except ThreadStopped:
            told.append("stopped")

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    assert begun.wait(10)
    thread.stop()
    asking.join(10)
    assert told == ["stopped"]


def test_whoever_is_interrupted_while_it_waits_cancels_it(monkeypatch):
    """Ctrl-C while a call runs: nothing of the call goes on behind its back."""
    thread, ended = LoopThread("there"), threading.Event()

    async def wait():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def begin(coroutine, loop):
        waiting = asyncio.run_coroutine_threadsafe(coroutine, loop)
        waiting.result = interrupt
        return waiting

    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr("rmq_ha.base.host.loop_thread.run_coroutine_threadsafe", begin)
    with pytest.raises(KeyboardInterrupt):
        thread.run(wait())
    assert ended.wait(10)
    thread.stop()
