"""`message copy`, `message resend` and `setaside`: stored messages that are sent again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.properties import REAL_TOPIC, RETRY_TOPIC, UNIQ_KEY
from rmq_ha.client.rules.messages import MessageExt
from rmq_ha.ops.admin import setaside
from rmq_ha.ops.admin.message_copy import COPIED_FROM, COPY_OF, CopyEdit, copy_of, sendable_topic
from rmq_ha.ops.admin.session import FAILED, NOT_FOUND, USAGE, ChangeRefused
from rmq_ha.testing.host import SimHost
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import say
from tests.unit.ops.admin.doctor.fleet import Fleet
from tests.unit.ops.admin.doctor.test_replication import old_master_returns
from tests.unit.ops.admin.typing_kit import Typist

HOST = Address("10.0.0.1", 1)


def stored(topic: str, body: bytes = b"b", sys_flag: int = 0, **properties: str) -> MessageExt:
    return MessageExt(
        topic, body, properties, "one", 2, 7, "ID", "PLACE", 0, 0, HOST, 0, HOST, 0, sys_flag
    )


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typist:
    """With a topic whose only message has a tag, a key and a property of its own."""
    typed = Typist(SimCluster("one"), monkeypatch)
    typed.does("topic create Orders --queues 1")
    typed.does("topic create Other --queues 1")
    line = "produce Orders --quiet --tags red --key k1 -p colour=blue -p size=9 --delay-level 1"
    typed.does(line, '{"n":1}')
    typed.cluster.run(5)
    return typed


def messages(typed: Typist, topic: str) -> list[dict[str, Any]]:
    return typed(f"tail {topic} --since earliest --no-follow").lines


def test_a_message_is_copied_edited_and_names_its_origin(typed: Typist) -> None:
    (old,) = messages(typed, "Orders")
    line = f"message copy {old['msg_id']} -t Orders --to Other --yes --drop size -p colour=green"
    told = typed.does(line, "--body", "new")
    (new,) = messages(typed, "Other")
    assert told.lines[-1]["status"] == "SEND_OK"
    assert told.lines[-1]["msg_id"] == new["msg_id"] != old["msg_id"]
    assert (new["body"], new["tags"], new["keys"]) == ("new", "red", "k1")
    properties = new["properties"]
    assert (properties["colour"], properties.get("size")) == ("green", None)
    assert properties[COPY_OF] == old["msg_id"]
    assert properties[COPIED_FROM] == "Orders/one:0:0"
    assert not {"DELAY", REAL_TOPIC} & properties.keys(), "it is delivered at once"
    assert messages(typed, "Orders") == [old]


def test_a_message_is_sent_again_by_its_place_with_other_tags_and_keys(typed: Typist) -> None:
    typed.does("message resend --at one:0:0 -t Orders --yes --tags green --key a --key b")
    old, new = messages(typed, "Orders")
    assert (new["body"], new["tags"], new["keys"]) == (old["body"], "green", "a b")
    ((only,),) = [typed.does("message show --key b -t Orders").lines]
    assert only["msg_id"] == new["msg_id"]


def test_a_body_is_edited_and_an_editor_that_is_left_sends_nothing(
    typed: Typist, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def edit(text: str, extension: str) -> str | None:
        seen.append(text)
        return None if len(seen) == 1 else text.replace("1", "2") + "\n"

    monkeypatch.setattr(click, "edit", edit)
    line = "message resend --at one:0:0 -t Orders --yes --edit"
    left = typed(line)
    assert (left.code, "nothing was sent" in left.err) == (FAILED, True)
    typed.does(line)
    old, new = messages(typed, "Orders")
    assert (old["body"], new["body"], seen) == ('{"n":1}', '{"n":2}', ['{"n":1}'] * 2)


def test_a_dry_run_shows_the_copy_and_sends_nothing(typed: Typist, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(b"\xff\0")
    line = f"message copy --at one:0:0 -t Orders --to Other --dry-run --body-file {body}"
    would = typed.does(line).lines[-1]["would_send"]
    assert (would["topic"], would["body_base64"]) == ("Other", "/wA=")
    assert "(2 bytes) ff00" in typed.as_typed(line).out
    assert messages(typed, "Other") == []


@pytest.mark.parametrize(
    "line",
    [
        "message resend",
        "message resend ABC",
        "message resend ABC -t T --at one:0:0",
        "message resend ABC -t T --body x --edit",
        "message resend ABC -t T -p colour",
    ],
)
def test_a_line_that_names_no_message_or_two_bodies_is_refused(typed: Typist, line: str) -> None:
    assert typed(f"{line} --yes").code == USAGE


def test_a_message_that_is_not_there_is_said(typed: Typist) -> None:
    assert typed("message resend ABC -t Orders --yes").code == NOT_FOUND
    assert typed("message copy --at one:0:9 -t Orders --to Other --yes").code == NOT_FOUND


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("copy --at one:0:0 -t Orders --to Othr", "there is no topic Othr: nothing was sent"),
        ("resend --at one:0:0 -t Orders --drop colr", "has no property colr (it has: KEYS, "),
        ("resend --at one:0:0 -t Orders -p DELAY=99", "DELAY is a level from 0 to 18"),
    ],
)
def test_a_copy_that_nobody_means_is_not_sent(typed: Typist, line: str, words: str) -> None:
    told = typed(f"message {line} --yes")
    assert told.code != 0
    assert words in told.err
    assert "Othr" not in typed("topic list").out
    assert len(messages(typed, "Orders")) == 1


def test_an_editor_that_does_not_exist(typed: Typist, monkeypatch: pytest.MonkeyPatch) -> None:
    def edit(text: str, extension: str) -> str | None:
        raise click.ClickException("nonsuch: Editing failed")

    monkeypatch.setattr(click, "edit", edit)
    told = typed("message resend --at one:0:0 -t Orders --yes --edit")
    assert (told.code, "name another editor in EDITOR" in told.err) == (FAILED, True)


def test_topics_of_rocketmq_and_dead_letters_are_not_sent_to_themselves() -> None:
    meant = {REAL_TOPIC: "Orders"}
    assert sendable_topic(stored("TRANS_CHECK_MAX_TIME_TOPIC", **meant)) == "Orders"
    assert sendable_topic(stored("%RETRY%g")) == "%RETRY%g"
    for topic, advice in (("%DLQ%g", "dlq resend g"), ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "--to")):
        with pytest.raises(ChangeRefused, match=advice):
            sendable_topic(stored(topic))
        assert copy_of(stored(topic), CopyEdit("Other")).topic == "Other"
    with pytest.raises(ChangeRefused, match="--body-file"):
        copy_of(stored("T", sys_flag=1), CopyEdit())
    retry = copy_of(stored("%RETRY%g", **{RETRY_TOPIC: "Orders"}), CopyEdit())
    assert retry.properties[RETRY_TOPIC] == "Orders", "members see the topic that it came from"


def aside_of(fleet: Fleet, host: SimHost, to: Path) -> Path:
    """The only folder that was set aside on a machine, on the real disk."""
    (name,) = host.disk.list_dir("/store/setaside")
    folder = to / "setaside" / name
    folder.mkdir(parents=True)
    for file in host.disk.list_dir(f"/store/setaside/{name}"):
        path = f"/store/setaside/{name}/{file}"
        (folder / file).write_bytes(host.disk.read_bytes(path))
    return folder


def test_messages_of_an_old_master_are_sent_again_once(tmp_path: Path) -> None:
    """Those that the topic has already, because their producer sent them again, are left out."""
    fleet = old_master_returns()
    folder = aside_of(fleet, fleet.hosts["a"], tmp_path)
    host = replace(fleet.world.add("admin").seams, disk=RealDisk())

    def run(work: Any, **more: Any) -> Any:
        async def later(session: Any) -> Any:
            result = work(session)
            return await result if hasattr(result, "__await__") else result

        return say(fleet, later, host, **more)

    listed = run(lambda s: setaside.show_folders(s, str(tmp_path))).json["rows"]
    assert [(row["messages"], row["topics"], row["sent"]) for row in listed] == [
        (3, "Work: 3", "no")
    ]
    shown = run(lambda s: setaside.show_messages(s, str(folder), None, 9)).out.splitlines()
    ids = [json.loads(line)["properties"][UNIQ_KEY] for line in shown]
    assert len(set(ids)) == 3
    nothing = run(lambda s: setaside.show_messages(s, str(folder), "Else", 9))
    assert (nothing.code, "no message of Else" in nothing.err) == (NOT_FOUND, True)

    def resent(most: int | None = None, topic: str | None = None, **sure: bool) -> Any:
        sure = {"yes": True, "dry_run": False} | sure
        work = setaside.resend_folder
        return run(lambda s: work(s, str(folder), topic, most, **sure))

    dry = resent(yes=False, dry_run=True).json
    assert (dry["would_send"], dry["sent"]) == (3, 0)
    assert resent(1).json == {"would_send": 1, "sent": 1, "present": 0}
    assert resent(2, "Work").json == {"would_send": 2, "sent": 1, "present": 1}
    assert resent().json == {"would_send": 2, "sent": 1, "present": 1}
    last = resent()
    assert (last.code, "nothing to send" in last.err) == (NOT_FOUND, True)
    (row,) = run(lambda s: setaside.show_folders(s, str(tmp_path))).json["rows"]
    assert row["sent"] == "all"
    (folder / setaside.SENT).unlink()
    assert resent().json == {"would_send": 3, "sent": 0, "present": 3}, "their ids are known"


def test_what_belongs_to_rocketmq_is_left_out_of_a_folder() -> None:
    half = setaside.send_of(stored("RMQ_SYS_TRANS_OP_HALF_TOPIC", UNIQ_KEY="u"))
    assert (half.made, "topic of RocketMQ" in half.why) == (None, True)
    sent = setaside.send_of(stored("Orders", UNIQ_KEY="u"))
    assert sent.made is not None
    assert sent.made.properties[UNIQ_KEY] == "u"


def test_folders_of_other_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "setaside" / "repair-1").mkdir(parents=True)
    cluster = SimCluster()
    host = replace(cluster.world.add("admin").seams, disk=RealDisk())

    async def listed(session: Any) -> None:
        setaside.show_folders(session, str(tmp_path))

    (row,) = say(cluster, listed, host).json["rows"]
    assert (row["folder"], row["messages"]) == (str(tmp_path / "setaside" / "repair-1"), None)
    (tmp_path / "setaside" / "repair-1").rmdir()
    assert say(cluster, listed, host).code == NOT_FOUND
