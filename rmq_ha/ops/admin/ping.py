"""`rmqha-admin cluster ping`: how long servers take to answer, and brokers to store."""

from collections.abc import Awaitable, Callable
from typing import Any

import click

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.asking import Ask, expect
from rmq_ha.client.lookup.lookups import topic_route
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.routes import subscribe_queues
from rmq_ha.client.rules.settings import ProducerConfig, name_servers
from rmq_ha.client.send.producer import Producer
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import NO_ANSWER, Session, run
from rmq_ha.ops.admin.targets import Target, targets

COLUMNS = ("kind", "name", "address", "asked", "failed", "least_ms", "mean_ms", "most_ms")


@click.command()
@click.argument("which", metavar="[BROKER|CLUSTER|HOST:PORT]", default="")
@click.option("--count", type=click.IntRange(1, 10_000), default=10, show_default=True)
@click.option(
    "--send",
    "topic",
    default="",
    metavar="TOPIC",
    help="Also send messages to this topic, at each broker that has it. Its consumers get them.",
)
@click.option(
    "--size",
    type=click.IntRange(1, 1 << 20),
    default=128,
    show_default=True,
    help="Bytes of each message that --send sends.",
)
@common_options
def ping(which: str, count: int, topic: str, size: int) -> None:
    """
    How long each name server and broker takes to answer a question, one after the other; with
    --send also until a message is stored, as safely as the broker is set up to.

    Exit code 4: one did not answer, or did not store.
    """

    async def work(session: Session) -> int | None:
        return await show_times(session, which, count, topic, size)

    run(work)


async def show_times(
    session: Session, which: str = "", count: int = 10, topic: str = "", size: int = 128
) -> int | None:
    """
    Show how long each server takes to answer and to store.

    :returns: the exit code.
    """
    asker, brokers = await targets(session, which)
    servers = name_servers(session.options.namesrv)
    asked: list[tuple[list[Any], Callable[[], Awaitable[object]]]] = [
        (["name server", None, server], _question(asker, server, _OF_NAME_SERVERS))
        for server in servers
    ]
    for target in brokers:
        about: list[Any] = [_kind(target), target.name or None, target.address]
        asked.append((about, _question(asker, target.address, _OF_BROKERS)))
    producer = None
    if topic:
        producer = await _producer(session)
        asked += await _sends(session, asker, producer, topic, size, {t.name for t in brokers})
    rows = []
    try:
        with session.output.progress("asking", len(asked) * count) as steps:
            for about, ask in asked:
                rows.append([*about, *await _times(session, about, ask, count, steps.advance)])
    finally:
        if producer is not None:
            await producer.stop()
    session.output.table("round trips", COLUMNS, rows)
    return NO_ANSWER if any(row[COLUMNS.index("failed")] for row in rows) else None


_OF_NAME_SERVERS = RequestCode.GET_BROKER_CLUSTER_INFO
_OF_BROKERS = RequestCode.GET_BROKER_RUNTIME_INFO


def _kind(target: Target) -> str:
    return "broker" if target.broker_id is None else ("slave" if target.broker_id else "master")


def _question(asker: Asker, address: str, code: int) -> Callable[[], Awaitable[object]]:
    return lambda: asker.run(expect(Ask(RemotingCommand(code), address)))


async def _producer(session: Session) -> Producer:
    config = ProducerConfig(
        producer_group="RMQHA_ADMIN",
        send_msg_timeout_ms=session.options.timeout_ms,
        delivery_timeout_ms=0,
        retry_times_when_send_failed=0,
    )
    producer = Producer(await session.client(), config)
    await producer.start()
    return producer


async def _sends(
    session: Session, asker: Asker, producer: Producer, topic: str, size: int, names: set[str]
) -> list[tuple[list[Any], Callable[[], Awaitable[object]]]]:
    """Return a send for each broker that has the topic, to the first of its queues."""
    first: dict[str, MessageQueue] = {}
    for queue in subscribe_queues(topic, await asker.run(topic_route(topic))):
        if queue.broker_name in names or names == {""}:
            first.setdefault(queue.broker_name, queue)

    def send_to(queue: MessageQueue) -> Callable[[], Awaitable[object]]:
        return lambda: producer.send(Message(topic, b"." * size), queue=queue)

    return [
        (["send", name, f"{topic}:{queue.queue_id}"], send_to(queue))
        for name, queue in sorted(first.items())
    ]


async def _times(
    session: Session,
    about: list[Any],
    ask: Callable[[], Awaitable[object]],
    count: int,
    step: Callable[[], object],
) -> list[Any]:
    """Return how many requests were made, how many failed, and how many ms the others took."""
    clock = session.host.clock
    took: list[float] = []
    failed = 0
    for number in range(count):
        if session.interrupted.called:
            break
        began = clock.seconds()
        try:
            await ask()
        except RmqHaError as error:
            failed += 1
            if failed == 1:
                session.output.warn(session.with_hint(f"{about[0]} {about[2]}: {error}"))
            if number == 0:
                return [1, 1, None, None, None]  # else: a timeout for each
        else:
            took.append((clock.seconds() - began) * 1000)
        step()
    if not took:
        return [failed, failed, None, None, None]
    shown = [round(value, 2) for value in (min(took), sum(took) / len(took), max(took))]
    return [len(took) + failed, failed, *shown]
