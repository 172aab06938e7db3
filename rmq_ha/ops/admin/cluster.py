"""`rmqha-admin cluster`: lists clusters, measures answers, and exports all settings."""

import os.path
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import click

from rmq_ha.base.errors import RemotingError, RmqHaError
from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.fastjson import encode
from rmq_ha.base.wire.members import to_members
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.asking import Ask, expect
from rmq_ha.client.lookup.brokers import (
    broker_config,
    consumer_offsets,
    group_configs,
    runtime_info,
    topic_configs,
)
from rmq_ha.client.lookup.lookups import topic_route
from rmq_ha.client.rules.messages import Message
from rmq_ha.client.rules.routes import subscribe_queues
from rmq_ha.client.rules.settings import ProducerConfig, name_servers
from rmq_ha.client.send.producer import Producer
from rmq_ha.ops.admin.broker import rate
from rmq_ha.ops.admin.cluster_import import import_
from rmq_ha.ops.admin.message_text import time_text
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.output import Output
from rmq_ha.ops.admin.pair import look_at
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, Session, run
from rmq_ha.ops.admin.targets import BrokerTarget, targets

COLUMNS = ("cluster", "names", "masters", "slaves", "silent", "topics", "in_tps", "out_tps")


@click.group()
@common_options
def cluster() -> None:
    """List clusters, measure how fast they answer, and export and import their settings."""


cluster.add_command(import_)


@cluster.command(name="list")
@click.argument("which", metavar="[CLUSTER]", default="")
@common_options
def list_(which: str) -> None:
    """
    List clusters with the numbers of their broker names, masters, slaves, topics and messages a
    second.

    Exit code 1: a broker name has no master; 4: a broker does not answer. `ha status` says more.
    """

    async def work(session: Session) -> int | None:
        return await show_clusters(session, which)

    run(work)


async def show_clusters(session: Session, which: str = "") -> int | None:
    """
    Show a row for each cluster.

    :returns: the exit code.
    """
    asker, brokers = await targets(session, which)
    counts: dict[str, Counter[str]] = {}
    rates: dict[str, Counter[str]] = {}
    names: dict[str, dict[str, bool]] = {}
    topics: dict[str, set[str]] = {}
    for target in session.output.track("asking brokers", brokers):
        member = await look_at(asker, target.address)
        count = counts.setdefault(target.cluster, Counter())
        led = names.setdefault(target.cluster, {})
        led[target.name] = led.get(target.name, False) or member.is_master
        if member.role is None:
            count["silent"] += 1
            session.output.warn(f"{target.name} {target.address}: {member.problem}")
            continue
        count["masters" if member.is_master else "slaves"] += 1
        if member.is_master:
            paces = rates.setdefault(target.cluster, Counter())
            for key in ("putTps", "getTransferedTps"):
                paces[key] += rate(member.info.get(key, "")) or 0.0  # type: ignore[assignment]
        known = await asker.run(topic_configs(target.address))
        topics.setdefault(target.cluster, set()).update(known)
    rows: list[list[Any]] = []
    for name, count in sorted(counts.items()):
        pace = rates.get(name, Counter())
        row = [name, len(names[name]), count["masters"], count["slaves"], count["silent"]]
        paced = [round(pace["putTps"], 1), round(pace["getTransferedTps"], 1)]
        rows.append([*row, len(topics.get(name, ())), *paced])
    session.output.table("clusters", COLUMNS, rows)
    if any(count["silent"] for count in counts.values()):
        return NO_ANSWER
    return None if all(led for own in names.values() for led in own.values()) else FAILED


PING_COLUMNS = ("kind", "name", "address", "asked", "failed", "least_ms", "mean_ms", "most_ms")


@cluster.command()
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
    Measure how long each name server and broker takes to answer a request, one after the other.
    With --send also measure how long each broker takes to store a message.

    Exit code 4: a server did not answer, or did not store a message.
    """

    async def work(session: Session) -> int | None:
        return await show_times(session, which, count, topic, size)

    run(work)


async def show_times(
    session: Session, which: str = "", count: int = 10, topic: str = "", size: int = 128
) -> int | None:
    """
    Show how long each name server and broker takes to answer, and each broker to store a message.

    :param which: a broker's name or `host:port`, or a cluster; empty: all brokers.
    :param count: how many requests each server gets.
    :param topic: the topic to which messages are sent; empty: no message is sent.
    :param size: bytes of each message.
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
    session.output.table("round trips", PING_COLUMNS, rows)
    return NO_ANSWER if any(row[PING_COLUMNS.index("failed")] for row in rows) else None


_OF_NAME_SERVERS = RequestCode.GET_BROKER_CLUSTER_INFO
_OF_BROKERS = RequestCode.GET_BROKER_RUNTIME_INFO


def _kind(target: BrokerTarget) -> str:
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
    """
    Return the first values of a row, and a function that sends one message, for each broker that
    has the topic. The messages go to the broker's first queue of the topic.

    :param size: bytes of each message.
    :param names: the broker names that count; `{""}`: all.
    """
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
    """
    Measure the requests to one server, one after the other.

    :param about: the first values of the server's row: kind, name, address.
    :param ask: makes one request, and waits for the answer.
    :param count: how many requests to make. After a first request that fails, no other is made.
    :param step: called after each request, except after a first one that fails.
    :returns: number of requests, number of failed ones, and shortest, mean and longest time in ms
        of the others; None for a time if all failed.
    """
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


_RATES = {"in_s": "putTps", "out_s": "getTransferedTps"}


@cluster.command()
@click.argument("file", type=click.Path(dir_okay=False), default="-")
@click.option(
    "--on",
    "which",
    default="",
    metavar="BROKER|CLUSTER|HOST:PORT",
    help="Export these brokers only.",
)
@click.option("--offsets", is_flag=True, help="Export the offsets of consumer groups, too.")
@common_options
def export(file: str, which: str, offsets: bool) -> None:
    """
    Write settings, topics, groups and rates of all brokers into FILE as JSON. Without FILE, or with
    `-`, the output is stdout. A FILE that exists is not overwritten.

    Exit code 1: FILE exists; 4: a broker does not answer, and is left out.
    """
    path = os.path.abspath(file)
    if file != "-" and RealDisk().exists(path):
        raise click.UsageError(f"{file} is there already: name another one")

    async def work(session: Session) -> int | None:
        document, problems = await cluster_document(session, which, offsets=offsets)
        if file == "-":
            Output(as_json=True).fields(document)
        else:
            session.host.disk.replace(path, encode(document))
            count = len(document["brokers"])
            session.output.line(f"{count} brokers in {path}", {"brokers": count, "file": path})
        for problem in problems:
            session.output.warn(problem)
        return NO_ANSWER if problems else None

    run(work)


async def cluster_document(
    session: Session, which: str = "", *, offsets: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """
    Make the document that `cluster export` writes.

    :param which: a broker's name or `host:port`, or a cluster; empty: all brokers.
    :param offsets: whether the document has the offsets of consumer groups, too.
    :returns: the document, and a line for each broker that did not answer.
    """
    asker, brokers = await targets(session, which)
    entries = []
    problems = []
    for target in session.output.track("asking brokers", brokers):
        here = target.address
        try:
            config = await asker.run(broker_config(here))
            info = await asker.run(runtime_info(here))
            topics = await asker.run(topic_configs(here))
            groups = await asker.run(group_configs(here))
            known = await asker.run(consumer_offsets(here)) if offsets else {}
        except RemotingError as error:
            problems.append(f"{target.name} {here} is left out: {error}")
            continue
        about: dict[str, Any] = {
            "cluster": target.cluster,
            "broker": target.name,
            "id": target.broker_id,
            "address": here,
            "version": info.get("brokerVersionDesc"),
            "rates": {name: rate(info.get(key, "")) for name, key in _RATES.items()},
            "config": dict(sorted(config.items())),
            "topics": [to_members(item) for _, item in sorted(topics.items())],
            "groups": [to_members(item) for _, item in sorted(groups.items())],
        }
        if offsets:
            about["offsets"] = {
                key: {str(queue): offset for queue, offset in sorted(table.items())}
                for key, table in sorted(known.items())
            }
        entries.append(about)
    return {"exported": time_text(session.host.now_ms()), "brokers": entries}, problems
