"""Damage on the disk."""

from __future__ import annotations

import contextlib
import re
import shutil
import textwrap
import time
from pathlib import Path

from rmq_ha.base.errors import RmqHaError
from rmq_ha.base.wire.codes import RequestCode
from tests.interop.rig import Server
from tests.interop.wire import Refused, Wire
from tests.museum.exhibit import Fact, Room
from tests.museum.sides import Side, create, lines_with, readable, send, serves

room = Room("Damage on the disk")
MASTER = "master-async.conf"
UNIT_SIZE = 20


def stored(server: Server, topic: str, count: int, size: int = 100) -> list[int]:
    """Send different messages; where in the log each begins."""
    places = []
    for number in range(count):
        (answer,) = send(server, topic, 1, body=(b"%06d" % number).ljust(size, b"."))
        places.append(int((answer.ext or {})["msgId"][-16:], 16))
    return places


def bodies(server: Server, topic: str, count: int) -> int:
    """How many of `count` offsets give a message."""
    found = 0
    for number in range(count):
        with contextlib.suppress(RmqHaError):
            body = serves(server, topic, number)
            found += body is not None and body.startswith(b"%06d" % number)
    return found


def flip(path: Path, position: int, bits: int = 1) -> None:
    """Damage one byte."""
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ bits]))


def log_file(server: Server, offset: int) -> tuple[Path, int]:
    """The file of the log that holds an offset, and the position in it."""
    size = 1 << 20
    return server.store / "commitlog" / f"{offset - offset % size:020d}", offset % size


def starts(side: Side, server: Server, **settings: object) -> tuple[Server, str]:
    """Start it again; what it ended with, if it does not start, else an empty text."""
    again = side.again(server, MASTER, wait=False, **settings)
    side.until(
        lambda: again.process.poll() is not None or "READY {" in again.output.read_text(),
        60,
        "it starts or ends",
    )
    code = again.process.poll()
    if code is None:
        return again, ""
    text = side.log_of(again).replace(f"{side.rig.directory}/", "")
    lines = lines_with(text, r"cannot start|#error|#critical|not matched") or ["- without a word"]
    told = re.split(r"\] | - |cannot start: ", lines[0])[-1]
    return again, f"exit code {code}: {textwrap.shorten(told, 150)}"


@room.exhibit("F3")
def flipped_bit_and_a_crash(side: Side) -> Fact:
    """One flipped bit and an unclean stop delete every good message behind the bit."""
    server = side.broker(MASTER)
    create(server, "T")
    places = stored(server, "T", 300, 4000)
    time.sleep(2.5)  # all is synced: no crash explains what is damaged then
    server.kill()
    flip(*(lambda path, at: (path, at + 300))(*log_file(server, places[280])))
    server, refusal = starts(side, server)
    if refusal:
        kept = [serves_after_all(server, places[number]) for number in range(281, 300)]
        return Fact(not all(kept), refusal)
    found = bodies(server, "T", 300)
    return Fact(found < 299, f"{299 - found} of 299 good messages are gone")


def serves_after_all(server: Server, place: int) -> bool:
    """A broker that did not start has left the record where it was."""
    path, position = log_file(server, place)
    with path.open("rb") as file:
        file.seek(position + 4)
        return file.read(4) == bytes.fromhex("daa320a7")


@room.exhibit("F6")
def queue_file_is_lost(side: Side) -> Fact:
    """A queue lost its files while the broker was down: its offsets are used a second time."""
    server = side.broker(MASTER)
    create(server, "T")
    create(server, "Later")
    send(server, "T", 100)
    send(server, "Later", 1)
    side.until(lambda: len(readable(server, "T")) == 100, 10, "dispatch")
    server.stop()
    shutil.rmtree(server.store / "consumequeue" / "T")
    server, refusal = starts(side, server)
    if refusal:
        return Fact(False, refusal)
    found = len(readable(server, "T"))
    (answer,) = send(server, "T", 1)
    offset = (answer.ext or {})["queueOffset"]
    return Fact(found < 100, f"{found} of 100 readable, the next message got offset {offset}")


@room.exhibit("F6")
def flipped_bit_in_a_queue(side: Side) -> Fact:
    """One flipped bit in a queue: consumers jump over hundreds of good messages, code FOUND."""
    server = side.broker(MASTER)
    create(server, "T")
    send(server, "T", 300)
    side.until(lambda: len(readable(server, "T")) == 300, 10, "dispatch")
    server.stop()
    (path,) = (server.store / "consumequeue" / "T" / "0").iterdir()
    flip(path, 20 * UNIT_SIZE + 2, 0x40)
    server, refusal = starts(side, server)
    found = len(readable(server, "T"))
    return Fact(found < 299, refusal or f"{found} of 300 reach a consumer")


@room.exhibit("F6")
def record_that_is_none(side: Side) -> Fact:
    """Garbage in the log is handed to consumers as a message: they drop the batch and go on."""
    server = side.broker(MASTER)
    create(server, "T")
    places = stored(server, "T", 60)
    server.stop()
    flip(*log_file(server, places[10] + 4), 0xFF)
    server, refusal = starts(side, server)
    if refusal:
        return Fact(False, refusal)
    try:
        found = len(readable(server, "T"))
    except RmqHaError as error:
        return Fact(True, f"a pull gives what is no message: {error}")
    return Fact(found < 59, f"{found} of 59 good messages reach a consumer")


@room.exhibit("F6", kept="`checkCRCOnRead=true` keeps it back, at a price")
def body_with_a_wrong_crc(side: Side) -> Fact:
    """A flipped bit in a body, after a clean stop: consumers get the wrong body."""
    server = side.broker(MASTER)
    create(server, "T")
    places = stored(server, "T", 60)
    server.stop()
    flip(*log_file(server, places[10] + 100))
    server, refusal = starts(side, server)
    sent = [(b"%06d" % number).ljust(100, b".") for number in range(60)]
    found = [record.body for record in readable(server, "T")]
    good = len(set(found) & set(sent))
    wrong = len(found) - good
    seen = f"{wrong} wrong bodies handed out, {good} of 59 good messages readable"
    return Fact(wrong > 0 or good < 59, refusal or seen)


@room.exhibit("D3")
def log_is_not_there(side: Side) -> Fact:
    """The disk of the log is not mounted: the broker begins an empty log and deletes the queues."""
    server = side.broker(MASTER)
    create(server, "T")
    send(server, "T", 50)
    side.until(lambda: len(readable(server, "T")) == 50, 10, "dispatch")
    server.stop()
    (server.store / "commitlog").rename(server.directory / "commitlog-not-mounted")
    server, refusal = starts(side, server)
    if refusal:
        return Fact(False, refusal)
    with contextlib.suppress(Refused), Wire(server.address) as wire:
        end = wire.max_offset("T", 0)
        return Fact(end < 50, f"started; the queue of 50 ends at {end}")
    return Fact(True, "started; the queue of 50 is gone")


@room.exhibit("A37: RMQ#3401, RMQ#6096, RMQ#9328, RMQ#10258")
def torn_tables(side: Side) -> Fact:
    """A power cut leaves half a topics.json and consumerOffset.json: no start, or empty tables."""
    server = side.broker(MASTER)
    create(server, "T")
    send(server, "T", 8)
    with Wire(server.address) as wire:
        wire.create_group("g")
        wire.commit("g", "T", 0, 7)
    server.stop()
    server = side.again(server, MASTER)
    with Wire(server.address) as wire:
        wire.commit("g", "T", 0, 8)
    create(server, "Newest")
    server.stop()
    for name in ("topics.json", "consumerOffset.json"):
        path = server.store / "config" / name
        path.write_bytes(path.read_bytes()[:-40])
    server, refusal = starts(side, server)
    if refusal:
        return Fact(True, refusal)
    with Wire(server.address) as wire:
        topics = wire.table(RequestCode.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]
        offsets = wire.table(RequestCode.GET_ALL_CONSUMER_OFFSET)["offsetTable"]
    known, offset = "T" in topics, offsets.get("T@g", {})
    return Fact(not known or not offset, f"topic known: {known}, offset of the group: {offset}")


@room.exhibit("F6", kept="the copy is one change old; make the topic again")
def topic_of_a_torn_table(side: Side) -> Fact:
    """topics.json is torn, and its copy lacks the last change: the newest topic is unknown."""
    server = side.broker(MASTER)
    create(server, "T")
    create(server, "Newest")
    send(server, "Newest", 20)
    server.kill()
    path = server.store / "config" / "topics.json"
    path.write_bytes(path.read_bytes()[:-40])
    server, refusal = starts(side, server)
    found = len(readable(server, "Newest"))
    create(server, "Newest")
    again = len(readable(server, "Newest"))
    told = f"{found} of its 20 messages readable, {again} when it is made again"
    return Fact(found < 20, refusal or told)


@room.exhibit("found in this project's trials")
def torn_checkpoint(side: Side) -> Fact:
    """A checkpoint of ten bytes, which could be built again, keeps the broker from starting."""
    server = side.broker(MASTER)
    create(server, "T")
    send(server, "T", 50)
    server.stop()
    path = server.store / "checkpoint"
    path.write_bytes(path.read_bytes()[:10])
    server, refusal = starts(side, server)
    found = len(readable(server, "T"))
    return Fact(found < 50, refusal or f"{found} of 50 readable")


@room.exhibit("found in this project's trials")
def short_queue_file(side: Side) -> Fact:
    """A shortened queue file, which the log could restore, keeps the broker from starting."""
    server = side.broker(MASTER)
    for topic in ("T", "Other"):
        create(server, topic)
        send(server, topic, 50)
    server.stop()
    (path,) = (server.store / "consumequeue" / "T" / "0").iterdir()
    path.write_bytes(path.read_bytes()[: 20 * UNIT_SIZE])
    server, refusal = starts(side, server)
    found = len(readable(server, "T"))
    return Fact(found < 50, refusal or f"{found} of 50 readable")
