"""`rmqha-admin transaction`: half messages whose producers have not ended their transactions."""

from collections import Counter
from typing import Any, NamedTuple

import click

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.model.properties import (
    PGROUP,
    REAL_TOPIC,
    TAGS,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
)
from rmq_ha.base.model.topics import HALF_TOPIC, OP_HALF_TOPIC
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.base.wire.stat_bodies import HALF, MOST_HALF_OFFSETS
from rmq_ha.client.blocking import READER_GROUP
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.brokers import replication_of, runtime_info, topic_offsets
from rmq_ha.client.lookup.lookups import PullTerms, committed_offset, pull
from rmq_ha.client.rules.broker_choice import BrokerChoice
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.client.rules.messages import MessageExt, PullResult
from rmq_ha.ops.admin.message_text import body_text, body_values, time_text
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, NothingFound, Session, run
from rmq_ha.ops.admin.targets import BrokerTarget, first_of_each, targets

COLUMNS = ("broker", "producer_group", "topic", "open", "oldest_s", "most_checks")
_CHECKS_GROUP = "CID_RMQ_SYS_TRANS"
_SETTLED_TAG = "d"
_PULLED = 32
_MOST_READ = 200_000


class NotKnownYet(RmqHaError):
    """A broker does not know its open half messages."""


class OpenTransaction(NamedTuple):
    """
    A half message that its producer neither committed nor rolled back.

    :ivar broker: name of the broker that has it; its address if the name is not known.
    :ivar group: the producer group that the broker asks about it.
    :ivar topic: the topic that it is meant for.
    :ivar born_ms: when the producer made it, ms since the epoch.
    :ivar checks: how often the broker has asked about it.
    """

    broker: str
    group: str
    topic: str
    born_ms: int
    checks: int
    message: MessageExt


@click.group()
@common_options
def transaction() -> None:
    """Show half messages whose producers have not ended their transactions."""


@transaction.command()
@click.argument("which", metavar="[BROKER|CLUSTER|HOST:PORT]", default="")
@click.option(
    "--fail-above",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Exit with 1 if a half message is older than this.",
)
@common_options
def status(which: str, fail_above: float | None) -> None:
    """
    Show by producer group and topic how many half messages are open, and how old the oldest is.

    A broker asks a producer of the group about each, every `transactionCheckInterval`. After
    `transactionCheckMax` questions it moves the half message to TRANS_CHECK_MAX_TIME_TOPIC.

    Exit code 1: see --fail-above; 4: a broker does not answer, or does not know yet.
    """

    async def work(session: Session) -> int | None:
        return await show_status(session, which, fail_above)

    run(work)


@transaction.command(name="list")
@click.argument("which", metavar="[BROKER|CLUSTER|HOST:PORT]", default="")
@click.option("--group", "-g", help="Only half messages of this producer group.")
@click.option("--max", "most", type=click.IntRange(min=1), default=32, show_default=True)
@common_options
def list_(which: str, group: str | None, most: int) -> None:
    """
    Show open half messages, the oldest of each broker first.

    Exit code 3: the group of --group has none; 4: a broker does not answer, or does not know yet.
    """

    async def work(session: Session) -> int | None:
        return await show_open(session, which, group, most)

    run(work)


async def show_status(
    session: Session, which: str = "", fail_above_s: float | None = None
) -> int | None:
    """
    Show a row for each producer group and topic of each broker.

    :param fail_above_s: the greatest age that is fine, in s; None: any.
    :returns: the exit code.
    """
    halves_open, has_problem = await _all_open(session, which)
    now_ms = session.host.now_ms()
    counts = Counter((item.broker, item.group, item.topic) for item in halves_open)
    rows: list[list[Any]] = []
    for key, count in sorted(counts.items()):
        own = [item for item in halves_open if (item.broker, item.group, item.topic) == key]
        oldest_s = round(max(0, now_ms - min(item.born_ms for item in own)) / 1000, 1)
        rows.append([*key, count, oldest_s, max(item.checks for item in own)])
    session.output.table("open transactions", COLUMNS, rows, open=len(halves_open))
    if has_problem:
        return NO_ANSWER
    is_old = fail_above_s is not None and any(row[4] > fail_above_s for row in rows)
    return FAILED if is_old else None


async def show_open(
    session: Session, which: str = "", group: str | None = None, most: int = 32
) -> int | None:
    """
    Show a line for each open half message.

    :param group: a producer group; None: all groups.
    :returns: the exit code.
    """
    halves_open, has_problem = await _all_open(session, which)
    now_ms = session.host.now_ms()
    chosen_ones = [item for item in halves_open if group in (None, item.group)]
    for item in chosen_ones[:most]:
        message, age_s = item.message, max(0, now_ms - item.born_ms) / 1000
        session.output.line(
            f"{time_text(item.born_ms)} {item.broker} {item.group} {item.topic} "
            f"{age_s:.0f} s, asked {item.checks} times {message.msg_id} {body_text(message.body)}",
            {
                "broker": item.broker,
                "producer_group": item.group,
                "topic": item.topic,
                "age_s": round(age_s, 1),
                "checks": item.checks,
                "msg_id": message.msg_id,
                "born": time_text(item.born_ms),
                "half_offset": message.queue_offset,
                "properties": message.properties,
                **body_values(message.body),
            },
        )
    if group and not (chosen_ones or has_problem):
        owners = ", ".join(sorted({item.group for item in halves_open})) or "none"
        raise NothingFound(
            f"the producer group {group} has no open half messages; groups that have some: {owners}"
        )
    if len(chosen_ones) > most:
        session.output.note(f"{len(chosen_ones) - most} more: give --max")
    return NO_ANSWER if has_problem else None


async def _all_open(session: Session, which: str) -> tuple[list[OpenTransaction], bool]:
    """Return the open half messages of all brokers, and whether a broker did not answer."""
    asker, brokers = await targets(session, which)
    halves_open: list[OpenTransaction] = []
    has_problem = False
    for target in session.output.track("asking brokers", first_of_each(brokers)):
        try:
            halves_open += await open_at(asker, session, target)
        except RmqHaError as error:
            has_problem = True
            session.output.warn(session.with_hint(f"{target.address}: {error}"))
    return halves_open, has_problem


async def open_at(asker: Asker, session: Session, target: BrokerTarget) -> list[OpenTransaction]:
    """
    Read the open half messages of a broker. A broker of rmq-ha names them, up to 1,000 of each
    queue. At a broker of RocketMQ the op messages are read, from the progress of its checks on.

    :raises NotKnownYet: the broker has not checked its half messages since its start.
    :raises BrokerRefused: the broker refuses.
    :raises RemotingError: the broker does not answer.
    """
    told = replication_of(await asker.run(runtime_info(target.address)))
    queues = await asker.run(topic_offsets(target.address, HALF_TOPIC))
    reader = _QueueReader(asker, session, target)
    halves: list[MessageExt] = []
    for queue in sorted(queues, key=lambda item: item.queue_id):
        name, queue_id = queue.broker_name, queue.queue_id
        if not told:
            halves += await _read_open(reader, name, queue_id)
            continue
        if HALF not in told:
            raise NotKnownYet(
                "it does not know yet which half messages are open: a master knows it after its "
                "first check of transactions (transactionCheckInterval), and a slave never"
            )
        offsets = told[HALF].get(str(queue_id), [])
        if len(offsets) >= MOST_HALF_OFFSETS:
            session.output.warn(
                f"{target.address} has {MOST_HALF_OFFSETS} open half messages or more in queue "
                f"{queue_id}: the numbers are of the first"
            )
        halves += await reader.messages_at(MessageQueue(HALF_TOPIC, name, queue_id), offsets)
    return [
        OpenTransaction(
            target.name or target.address,
            half.properties.get(PGROUP, ""),
            half.properties.get(REAL_TOPIC, ""),
            half.born_timestamp,
            _number(half.properties.get(TRANSACTION_CHECK_TIMES)),
            half,
        )
        for half in halves
    ]


async def _read_open(reader: "_QueueReader", name: str, queue_id: int) -> list[MessageExt]:
    """
    Return the half messages of a queue that no op message settles.

    :raises NotKnownYet: the broker does not give op messages to clients.
    """
    halves = await reader.messages(MessageQueue(HALF_TOPIC, name, queue_id))
    try:
        ops = await reader.messages(MessageQueue(OP_HALF_TOPIC, name, queue_id))
    except BrokerRefused as refusal:
        raise NotKnownYet(
            f"it is a broker of RocketMQ that does not show which of its {len(halves)} last half "
            f"messages are settled ({refusal.remark}). Its log names half messages that it gives up"
        ) from None
    settled = settled_by(ops)
    return [
        half
        for half in halves
        if half.queue_offset not in settled
        and _number(half.properties.get(TRAN_PREPARED_QUEUE_OFFSET), -1) not in settled
    ]


def settled_by(ops: list[MessageExt]) -> set[int]:
    """
    Return the queue offsets of half messages that op messages settle. RocketMQ 5 writes several
    offsets into one op message.
    """
    return {
        int(text)
        for op in ops
        if op.properties.get(TAGS) == _SETTLED_TAG
        for text in op.body.decode("ascii", "replace").split(",")
        if text.strip().isascii() and text.strip().isdigit()
    }


def _number(text: str | None, default: int = 0) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else default


class _QueueReader:
    """Reads queues of half messages and op messages of one broker."""

    def __init__(self, asker: Asker, session: Session, target: BrokerTarget) -> None:
        self._asker = asker
        self._session = session
        self._choice = BrokerChoice(session.host.clock.seconds)
        self._addresses = {target.broker_id or 0: target.address}

    async def messages_at(self, queue: MessageQueue, offsets: list[int]) -> list[MessageExt]:
        """
        Return the messages at some offsets of a queue, which grow.

        :raises BrokerRefused: the broker refuses.
        :raises RemotingError: the broker does not answer.
        """
        wished, messages = set(offsets), []
        next_offset = -1
        for offset in offsets:
            if offset < next_offset:
                continue
            result = await self._pull(queue, offset)
            messages += [item for item in result.msg_found_list if item.queue_offset in wished]
            next_offset = max(offset + 1, result.next_begin_offset)
        return messages

    async def _pull(self, queue: MessageQueue, offset: int) -> PullResult:
        terms = PullTerms(READER_GROUP, _PULLED)
        return await self._asker.run(pull(self._choice, self._addresses, queue, offset, terms))

    async def messages(self, queue: MessageQueue) -> list[MessageExt]:
        """
        Return the messages from the progress of the checks to the end.

        :raises BrokerRefused: the broker refuses.
        :raises RemotingError: the broker does not answer.
        """
        known = await self._asker.run(committed_offset(self._addresses, _CHECKS_GROUP, queue))
        offset = max(0, known)
        messages: list[MessageExt] = []
        while len(messages) < _MOST_READ:
            result = await self._pull(queue, offset)
            messages += result.msg_found_list
            if result.next_begin_offset <= offset or offset >= result.max_offset:
                return messages
            offset = result.next_begin_offset
        self._session.output.warn(
            f"{queue.topic} has more than {_MOST_READ} messages to read: the numbers are of those"
        )
        return messages
