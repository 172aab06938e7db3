"""`rmqha-admin setaside`: messages that a broker moved out of its log, and sends of them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import click

from rmq_ha.base.errors import CannotDecide, ProtocolViolation
from rmq_ha.base.host.surroundings import real_surroundings
from rmq_ha.base.model.properties import UNIQ_KEY
from rmq_ha.base.seams import Disk
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import read_body
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.lookups import KeyQuery
from rmq_ha.client.rules.messages import Message, MessageExt, message_of
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.message_copy import CopyEdit, copy_of
from rmq_ha.ops.admin.message_lookup import by_key
from rmq_ha.ops.admin.message_text import message_line, message_values, time_text
from rmq_ha.ops.admin.options import common_options
from rmq_ha.ops.admin.session import FAILED, ChangeRefused, NothingFound, Session, run
from rmq_ha.ops.admin.store import opened
from rmq_ha.ops.admin.store_access import load_configuration
from rmq_ha.ops.offline.records import Damage, records
from rmq_ha.server.store.log.layout import store_root
from rmq_ha.server.store.log.setaside import ABOUT, FOLDER

COLUMNS = ("folder", "time", "messages", "topics", "sent", "why")
SENT = "sent.json"
"""A file in a folder: up to which physical offset its messages were sent again."""
_KEEP_EVERY = 50


class SetAsideFolder(NamedTuple):
    """
    A folder below `setaside`.

    :ivar path: its path.
    :ivar about: the content of `about.json`; None: the folder is incomplete, or holds other files
        than messages.
    :ivar sent_to: physical offset up to which its messages were sent again; -1: none were.
    """

    path: str
    about: dict[str, Any] | None
    sent_to: int = -1


@click.group()
@common_options
def setaside() -> None:
    """
    Show messages that a broker moved out of its log into the folder `setaside` of its store, and
    send them again. Type the commands on the broker's machine; the broker may run.
    """


@setaside.command(name="list")
@click.option("--config", "-c", type=click.Path(exists=True, dir_okay=False, resolve_path=True))
@click.option("--store", type=click.Path(exists=True, file_okay=False, resolve_path=True))
@common_options
def list_(config: str | None, store: str | None) -> None:
    """
    List the folders of a broker's properties file (--config) or of a store (--store).

    Exit code 3: there is no folder.
    """
    if bool(config) == bool(store):
        raise click.UsageError("give either --config or --store")

    async def work(session: Session) -> None:
        root = store
        if config is not None:
            own = load_configuration(session.host.disk, config, real_surroundings("."))
            root = store_root(own.store)
        show_folders(session, root or "")

    run(work)


def show_folders(session: Session, root: str) -> None:
    """
    Show a row for each folder.

    :raises NothingFound: the store has no folder.
    """
    disk, place = session.host.disk, f"{root}/{FOLDER}"
    folders = [folder_at(disk, f"{place}/{name}") for name in sorted(disk.list_dir(place))]
    if not folders:
        raise NothingFound(f"{place} has no folder: no message of this store was set aside")
    session.output.table("set aside", COLUMNS, [_row(item) for item in folders])


def folder_at(disk: Disk, path: str) -> SetAsideFolder:
    """Read what a folder says of itself."""
    try:
        about = read_body(disk.read_bytes(f"{path}/{ABOUT}"), summary_of)
    except (OSError, ProtocolViolation):
        return SetAsideFolder(path, None)
    try:
        return SetAsideFolder(
            path, about, read_body(disk.read_bytes(f"{path}/{SENT}"), lambda said: int(said["to"]))
        )
    except (OSError, ProtocolViolation):
        return SetAsideFolder(path, about)


def summary_of(said: Any) -> dict[str, Any]:
    """
    Read the summary that `log/setaside.py` wrote. A summary of another shape raises an error that
    `read_body` handles.
    """
    topics = {str(topic): int(count) for topic, count in said["topics"].items()}
    return {**said, "time": int(said["time"]), "messages": int(said["messages"]), "topics": topics}


def _row(item: SetAsideFolder) -> list[Any]:
    if item.about is None:
        return [item.path, None, None, None, None, "no messages, or an incomplete copy"]
    topics = ", ".join(f"{name}: {count}" for name, count in item.about["topics"].items())
    is_sent = item.sent_to >= int(item.about.get("to", 0))
    sent = "no" if item.sent_to < 0 else "all" if is_sent else f"up to {item.sent_to}"
    why = str(item.about.get("why", ""))
    return [item.path, time_text(item.about["time"]), item.about["messages"], topics, sent, why]


_FOLDER = click.argument("folder", type=click.Path(exists=True, file_okay=False, resolve_path=True))
_topic = click.option("--topic", "-t", help="Only messages of this topic.")


@setaside.command()
@_FOLDER
@_topic
@click.option("--max", "most", type=click.IntRange(min=1), default=32, show_default=True)
@common_options
def show(folder: str, topic: str | None, most: int) -> None:
    """
    Show the messages in FOLDER.

    Exit code 3: the folder has no message.
    """

    async def work(session: Session) -> None:
        show_messages(session, folder, topic, most)

    run(work)


def show_messages(session: Session, folder: str, topic: str | None, most: int) -> None:
    """
    Show messages of a folder, the oldest first.

    :raises NothingFound: the folder has no message.
    """
    shown = 0
    for message in messages_in(session, folder):
        if topic not in (None, message.topic):
            continue
        session.output.line(
            message_line(message),
            {"physical_offset": message.commit_log_offset, **message_values(message)},
        )
        shown += 1
        if shown == most:
            return
    if not shown:
        raise NothingFound(f"{folder} has no message{f' of {topic}' if topic else ''}")


def messages_in(session: Session, folder: str) -> Iterator[MessageExt]:
    """
    Yield the messages of a folder in the order of the log. Damaged places are warned of.

    :raises NothingFound: the folder has no log files.
    """
    try:
        store = opened(folder, folder)
        for piece in records(store, 0):
            if isinstance(piece, Damage):
                session.output.warn(
                    f"{folder}: the bytes from {piece.start} to {piece.end} are no message"
                )
            else:
                yield message_of(decode_record(piece.data))
    except CannotDecide as error:
        raise NothingFound(f"{folder}: {error}") from None


@setaside.command()
@_FOLDER
@_topic
@click.option("--max", "most", type=click.IntRange(min=1), help="Send at most this number.")
@sure_options
@common_options
def resend(folder: str, topic: str | None, most: int | None, **sure: bool) -> None:
    """
    Send the messages in FOLDER to their topics again, in the order of the log.

    Each message keeps its unique id. A message whose id the topic already has is left out, so a
    message that its producer sent again does not come twice, and the command can be repeated.
    Half messages and other messages of RocketMQ itself are left out. Delayed messages are delivered
    at once. The folder stays: delete it when nobody needs it.

    Exit code 1: some were not sent; 3: there is nothing to send.
    """
    must_be_askable(**sure)

    async def work(session: Session) -> int | None:
        return await resend_folder(session, folder, topic, most, **sure)

    run(work)


class SetAsideSend(NamedTuple):
    """
    A message of a folder, and what is sent for it.

    :ivar made: the message to send; None: it is left out.
    :ivar why: why it is left out.
    """

    message: MessageExt
    made: Message | None
    why: str = ""


def send_of(message: MessageExt) -> SetAsideSend:
    """Return what is sent for a message that was set aside. It keeps its unique id."""
    try:
        made = copy_of(message, CopyEdit())
    except ChangeRefused as refusal:
        return SetAsideSend(message, None, str(refusal))
    unique = message.properties.get(UNIQ_KEY)
    if unique:
        made.properties[UNIQ_KEY] = unique
    return SetAsideSend(message, made)


async def resend_folder(
    session: Session, folder: str, topic: str | None, most: int | None, **sure: bool
) -> int | None:
    """
    Ask the operator, and send the messages of a folder.

    :returns: the exit code.
    :raises NothingFound: the folder has nothing to send.
    :raises MQClientError: a message was not stored; the next call continues with it.
    """
    known = folder_at(session.host.disk, folder)
    sends = [
        item
        for item in map(send_of, messages_in(session, folder))
        if topic is None or topic in (item.message.topic, item.made and item.made.topic)
    ]
    left_out = [item for item in sends if item.made is None]
    first = known.sent_to if topic is None else -1
    to_send = [
        item for item in sends if item.made is not None and item.message.commit_log_offset >= first
    ][:most]
    for why in dict.fromkeys(f"{item.message.topic}: {item.why}" for item in left_out):
        session.output.warn(f"left out: {why}")
    if not to_send:
        raise NothingFound(f"{folder} has nothing to send again")
    if not is_wanted(f"Send {len(to_send)} messages of {folder} again?", **sure):
        session.output.line(
            f"{len(to_send)} would be sent, unless their topics have them already",
            {"would_send": len(to_send), "sent": 0, "left_out": len(left_out)},
        )
        return None
    sender = _FolderSender(session, folder, keeps=topic is None)
    await sender.send_all(to_send)
    return FAILED if sender.sent + sender.present < len(to_send) else None


class _FolderSender:
    """
    Sends messages of one folder, and keeps in the folder how far it came.

    :param keeps: whether to keep it; a run for one topic says nothing about the others.
    """

    def __init__(self, session: Session, folder: str, *, keeps: bool) -> None:
        self.sent = 0
        self.present = 0
        self._session = session
        self._folder = folder
        self._keeps = keeps
        self._ids: set[tuple[str, str]] = set()

    async def send_all(self, to_send: list[SetAsideSend]) -> None:
        """
        Send messages, one after the other.

        :raises MQClientError: a message was not stored.
        """
        output, done = self._session.output, -1
        config = ProducerConfig(
            send_msg_timeout_ms=self._session.options.timeout_ms, delivery_timeout_ms=0
        )
        producer = Producer(await self._session.client(), config)
        await producer.start()
        try:
            with output.progress("sending", len(to_send)) as steps:
                for number, (message, made, _) in enumerate(to_send):
                    if self._session.interrupted.called:
                        break
                    if made is not None:
                        await self._send(producer, made)
                    done = message.commit_log_offset + message.store_size
                    if number % _KEEP_EVERY == _KEEP_EVERY - 1:
                        self._keep(done)
                    steps.advance()
        finally:
            await producer.stop()
            self._keep(done)
            output.line(
                f"{self.sent} of {len(to_send)} sent, {self.present} were there already",
                {"would_send": len(to_send), "sent": self.sent, "present": self.present},
            )

    async def _send(self, producer: Producer, made: Message) -> None:
        unique = made.properties.get(UNIQ_KEY, "")
        if unique and await self._is_there(made.topic, unique):
            self.present += 1
            return
        await producer.send(made)
        self._ids.add((made.topic, unique))
        self.sent += 1

    async def _is_there(self, topic: str, unique: str) -> bool:
        """Return whether a topic has a message with this unique id already."""
        if (topic, unique) in self._ids:
            return True
        asker = Asker(await self._session.client())
        return bool(await asker.run(by_key(KeyQuery(topic, unique, True, 1, 0))))

    def _keep(self, done: int) -> None:
        if self._keeps and done >= 0:
            self._session.host.disk.replace(f"{self._folder}/{SENT}", fastjson.pretty({"to": done}))
