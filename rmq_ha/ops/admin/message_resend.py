"""`rmqha-admin message copy` and `message resend`: send a stored message again, also edited."""

from collections.abc import Callable
from typing import Any

import click

from rmq_ha.client.rules.errors import NoRoute
from rmq_ha.client.rules.messages import Message, MessageExt
from rmq_ha.client.rules.settings import ProducerConfig
from rmq_ha.client.send.producer import Producer
from rmq_ha.ops.admin.confirm import is_wanted, must_be_askable, sure_options
from rmq_ha.ops.admin.message_copy import CopyEdit, copy_of
from rmq_ha.ops.admin.message_lookup import SpotType, must_name_one, one_message
from rmq_ha.ops.admin.message_text import body_text, body_values, result_line, result_values
from rmq_ha.ops.admin.options import combine_options, common_options, read_properties
from rmq_ha.ops.admin.session import ChangeRefused, NothingFound, Session, run

BodyEditor = Callable[[str], str | None]
"""Shows a body in an editor; returns the new body, or None if the user did not save."""


_edit_options = combine_options(
    click.argument("msg_id", metavar="[ID]", required=False),
    click.option("--topic", "-t", default="", help="The message's topic."),
    click.option(
        "--at",
        "spot",
        type=SpotType(),
        metavar="BROKER:QUEUE:OFFSET",
        help="Take the message at this place instead of an ID.",
    ),
    click.option("--body", help="The new body."),
    click.option("--body-file", type=click.File("rb"), help="A file with the new body."),
    click.option("--edit", "in_editor", is_flag=True, help="Open the body in $EDITOR first."),
    click.option("--tags", help="The new tag; empty: none."),
    click.option("--key", "keys", multiple=True, help="A new key, in place of all; repeatable."),
    click.option(
        "--property",
        "-p",
        "properties",
        multiple=True,
        callback=read_properties,
        metavar="NAME=VALUE",
        help="Set this property; repeatable.",
    ),
    click.option("--drop", multiple=True, metavar="NAME", help="Remove this property; repeatable."),
)


@click.command()
@_edit_options
@click.option("--to", "target", required=True, metavar="TOPIC", help="The topic of the copy.")
@sure_options
@common_options
def copy(target: str, **given: Any) -> None:
    """
    Copy a message to another topic, also with another body or other properties.

    The copy gets an id of its own. Its properties RMQHA_COPY_OF and RMQHA_COPIED_FROM name the id
    and the place of the message. A delay is not copied.

    Exit code 1: the copy was not sent; 3: there is no such message.
    """
    _send(target, given)


@click.command()
@_edit_options
@sure_options
@common_options
def resend(**given: Any) -> None:
    """
    Send a message to its topic again, also with another body or other properties. All groups of the
    topic get it.

    A message that waited in a topic of RocketMQ (TRANS_CHECK_MAX_TIME_TOPIC) goes to the topic that
    it was meant for. The new message names the old one, as with `message copy`.

    Exit code 1: it was not sent; 3: there is no such message.
    """
    _send(None, given)


def _send(target: str | None, given: dict[str, Any]) -> None:
    """
    Run the command.

    :param target: topic of the copy; None: the message's own.
    :param given: the values of the command's options.
    """
    msg_id, topic, spot = given["msg_id"], given["topic"], given["spot"]
    bodies = (given["body"], given["body_file"])
    if sum(item is not None for item in bodies) + given["in_editor"] > 1:
        raise click.UsageError("give one of --body, --body-file and --edit")
    must_name_one(msg_id, topic, spot)
    sure = {"yes": given["yes"], "dry_run": given["dry_run"]}
    must_be_askable(**sure)
    body = given["body_file"].read() if given["body_file"] is not None else None
    if given["body"] is not None:
        body = given["body"].encode("utf-8", "surrogateescape")
    edit = CopyEdit(
        target,
        body,
        given["tags"],
        given["keys"] or None,
        given["properties"],
        frozenset(given["drop"]),
    )
    editor = _open_editor if given["in_editor"] else None

    async def work(session: Session) -> None:
        message = await one_message(session, msg_id, topic, spot)
        await send_copy(session, message, edit, editor, **sure)

    run(work)


def _open_editor(text: str) -> str | None:
    try:
        return click.edit(text, extension=".txt")
    except click.ClickException as error:
        raise ChangeRefused(
            f"{error.format_message()}: nothing was sent; name another editor in EDITOR, or give "
            "--body or --body-file"
        ) from None


async def send_copy(
    session: Session,
    message: MessageExt,
    edit: CopyEdit,
    editor: BodyEditor | None = None,
    **sure: bool,
) -> None:
    """
    Ask the operator, and send the copy of a message.

    :param editor: opens the body first; None: no editor.
    :raises ChangeRefused: the message cannot be sent again, or the user did not save the body.
    :raises MQClientError: no broker stored the copy.
    """
    made = copy_of(message, edit)
    await _must_exist(session, made.topic)
    if editor is not None:
        made.body = await _edited_body(session, made.body, editor)
    session.output.say(f"{message.topic} {message.msg_id} to {made.topic}: {_summary(made)}")
    if not is_wanted(f"Send it to {made.topic}?", **sure):
        session.output.line("dry run: nothing was sent", {"would_send": _values(made)})
        return
    config = ProducerConfig(send_msg_timeout_ms=session.options.timeout_ms, delivery_timeout_ms=0)
    producer = Producer(await session.client(), config)
    await producer.start()
    try:
        result = await producer.send(made)
    finally:
        await producer.stop()
    session.output.line(result_line(result), {"copy_of": message.msg_id, **result_values(result)})


async def _must_exist(session: Session, topic: str) -> None:
    """
    Check that the topic exists, as a broker would make a misspelt one at the first message.

    :raises NothingFound: it does not exist.
    """
    client = await session.client()
    try:
        await client.route(topic)
    except NoRoute:
        raise NothingFound(
            f"there is no topic {topic}: nothing was sent; `topic list` shows all, and "
            f"`rmqha-admin topic create {topic}` makes it"
        ) from None


async def _edited_body(session: Session, body: bytes, editor: BodyEditor) -> bytes:
    """
    Have the user edit a body, in a thread, so that connections stay alive.

    :raises ChangeRefused: the body is no text, or the user did not save it.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise ChangeRefused("the body is no text in UTF-8: give --body-file") from None
    new = await session.host.worker.call(editor, text)
    if new is None:
        raise ChangeRefused("the editor did not save the body: nothing was sent")
    if new.endswith("\n") and not text.endswith("\n"):
        new = new.removesuffix("\n")  # editors end the last line, and the body had no line end
    return new.encode()


def _summary(made: Message) -> str:
    shown = {name: value for name, value in made.properties.items() if name != "WAIT"}
    properties = ", ".join(f"{name}={value}" for name, value in sorted(shown.items()))
    return f"{body_text(made.body)} ({properties})"


def _values(made: Message) -> dict[str, Any]:
    return {"topic": made.topic, "properties": made.properties, **body_values(made.body)}
