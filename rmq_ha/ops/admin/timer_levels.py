"""`rmqha-admin timer levels`: the messages with a delay level that wait, by level and time."""

from typing import Any, NamedTuple

import click

from rmq_ha.base.errors import ConfigurationError, RmqHaError
from rmq_ha.base.model.topics import DELAY_LEVELS, SCHEDULE_TOPIC
from rmq_ha.base.store_format.delay_levels import parse_delay_levels
from rmq_ha.base.wire.bodies import MessageQueue, decode_delay_offsets
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.blocking import READER_GROUP
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.asking import Ask, expect
from rmq_ha.client.lookup.brokers import broker_config, topic_offsets
from rmq_ha.client.lookup.lookups import PullTerms, pull
from rmq_ha.client.rules.broker_choice import BrokerChoice
from rmq_ha.ops.admin.message_text import time_text
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import NO_ANSWER, Session, run
from rmq_ha.ops.admin.targets import BrokerTarget, first_of_each, targets

COLUMNS = ("broker", "level", "delay", "waiting", "next_due", "last_due")


class DelayLevelFacts(NamedTuple):
    """
    The messages of one delay level that wait at one broker.

    :ivar level: the level, from 1 on.
    :ivar delay: its delay as configured, like `10m`; empty: the broker has no such level any more.
    :ivar next_due_ms: when the first of them is due; None: it could not be read.
    :ivar last_due_ms: when the last of them is due; None: the level has no delay any more.
    """

    level: int
    delay: str
    waiting: int
    next_due_ms: int | None
    last_due_ms: int | None


@click.command()
@click.argument("which", metavar="[BROKER|CLUSTER|HOST:PORT]", default="")
@click.option("--all", "every", is_flag=True, help="Show levels in which no message waits, too.")
@common_options
def levels(which: str, every: bool) -> None:
    """
    Show for each delay level (DELAY) how many messages wait, and when the first and the last of
    them are due. Messages with a time of their own are shown by `timer status`.

    Exit code 4: a broker does not answer.
    """

    async def work(session: Session) -> int | None:
        return await show_levels(session, which, every=every)

    run(work)


async def show_levels(session: Session, which: str = "", *, every: bool = False) -> int | None:
    """
    Show a row for each level of each broker name.

    :param which: name of a broker or cluster, or an address; empty for all brokers.
    :param every: show levels without waiting messages, too.
    :returns: the exit code.
    """
    asker, brokers = await targets(session, which)
    rows, problems = [], []
    for target in session.output.track("asking brokers", first_of_each(brokers)):
        try:
            known = await levels_of(asker, session, target)
        except RmqHaError as error:
            problems.append(f"{target.address}: {error}")
            continue
        rows += [_row(target, item) for item in known if item.waiting or every]
    waiting = sum(row[COLUMNS.index("waiting")] for row in rows)
    session.output.table("delay levels", COLUMNS, rows, waiting=waiting)
    for problem in problems:
        session.output.warn(problem)
    return NO_ANSWER if problems else None


def _row(target: BrokerTarget, item: DelayLevelFacts) -> list[Any]:
    due = [None if at is None else time_text(at) for at in (item.next_due_ms, item.last_due_ms)]
    return [target.name or target.address, item.level, item.delay or None, item.waiting, *due]


async def levels_of(asker: Asker, session: Session, target: BrokerTarget) -> list[DelayLevelFacts]:
    """
    Ask a broker for its delay levels.

    :raises BrokerRefused: the broker refuses.
    :raises RemotingError: the broker does not answer.
    :raises ProtocolViolation: it answers in another form.
    """
    here = target.address
    config = await asker.run(broker_config(here))
    texts = config.get("messageDelayLevel", DELAY_LEVELS).split(" ")
    try:
        delays_ms = parse_delay_levels(" ".join(texts))
    except ConfigurationError:
        texts, delays_ms = [], []
    command = RemotingCommand(RequestCode.GET_ALL_DELAY_OFFSET)
    response = await asker.run(expect(Ask(command, here)))
    delivered = decode_delay_offsets(response.body or b"{}")
    facts = []
    offsets = await asker.run(topic_offsets(here, SCHEDULE_TOPIC))
    for queue, known in sorted(offsets.items(), key=lambda item: item[0].queue_id):
        level = queue.queue_id + 1
        first = max(known.min_offset, delivered.get(level, 0))
        waiting = max(0, known.max_offset - first)
        delay_ms = delays_ms[level - 1] if level <= len(delays_ms) else None
        text = texts[level - 1] if delay_ms is not None else ""
        if not waiting and not text:
            continue  # the topic has queues for levels that nobody configured
        next_due = last_due = None
        if waiting and delay_ms is not None:
            last_due = known.last_update_timestamp + delay_ms
            stored_ms = await _stored_at(asker, session, target, queue, first)
            next_due = None if stored_ms is None else stored_ms + delay_ms
        facts.append(DelayLevelFacts(level, text, waiting, next_due, last_due))
    return facts


async def _stored_at(
    asker: Asker, session: Session, target: BrokerTarget, queue: MessageQueue, offset: int
) -> int | None:
    """Return when a message was stored, ms since the epoch; None if the broker does not show it."""
    choice = BrokerChoice(session.host.clock.seconds)
    addresses = {target.broker_id or 0: target.address}
    try:
        result = await asker.run(pull(choice, addresses, queue, offset, PullTerms(READER_GROUP, 1)))
    except RmqHaError:
        return None
    first = next(iter(result.msg_found_list), None)
    return None if first is None else first.store_timestamp
