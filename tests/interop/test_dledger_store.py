"""A ledger on the disk: Java's is read and written by us byte for byte, and ours by Java."""

from __future__ import annotations

import shutil
from pathlib import Path
from struct import pack_into, unpack_from
from zlib import crc32

from rmq_ha.base.host.disk import RealDisk
from rmq_ha.base.store_format.dledger import decode_term
from rmq_ha.base.store_format.dledger_values import Entry
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.server.dledger.ledger import Ledger
from rmq_ha.server.dledger.ledger_files import LedgerFiles
from rmq_ha.server.dledger.term_file import TermFile
from tests.interop.groups import FILE_SIZE, QUEUES, TOPIC, Group, Member, data, index
from tests.interop.rig import Rig
from tests.interop.wire import Wire

BODY = 2500
COUNT = 1500  # some files


def folder(member: Member) -> Path:
    """Of a member's ledger."""
    return member.server.store / f"dledger-{member.name}"


def opened(directory: Path) -> Ledger:
    """A ledger, recovered by us."""
    ledger = Ledger(RealDisk(), str(directory), FILE_SIZE)
    ledger.load()
    return ledger


def all_entries(ledger: Ledger) -> list[Entry]:
    """Everything, from the disk."""
    found: list[Entry] = []
    while (position := found[-1].index + 1 if found else 0) <= ledger.end_index:
        found += ledger.entries(position, 1 << 20, 500)
    return found


def send(group: Group, first: int, count: int) -> None:
    """Messages from a number on, in queue 0."""
    leader = group.wait_leader()
    with Wire(leader.server.address, 20) as wire:
        for start in range(first, first + count, 100):
            requests = [
                send_request("P", TOPIC, 0, f"{n:06}".encode().ljust(BODY, b"."), "", QUEUES)
                for n in range(start, min(start + 100, first + count))
            ]
            assert {answer.code for answer in wire.exchange(requests)} == {0}


def assert_rewritten_same(written: Path, rewritten: Path) -> None:
    """Data and index, encoded anew from what we read, are the bytes that are there."""
    ledger = opened(written)
    entries = all_entries(ledger)
    assert [entry.index for entry in entries] == list(range(len(entries)))
    assert len(entries) > COUNT
    files = LedgerFiles(RealDisk(), str(rewritten), [f"{rewritten}/data"], FILE_SIZE)
    files.load()
    files.write(entries, 0, -1)
    files.close()
    for part in ("data", "index"):
        for path in sorted((written / part).iterdir()):
            with path.open("rb") as one, (rewritten / part / path.name).open("rb") as other:
                while chunk := one.read(1 << 20):
                    assert chunk == other.read(1 << 20), path
                    if part == "index" and not any(chunk):
                        break  # sparse from there on
    ledger.close()


def append_ours(ledger: Ledger, first: int, count: int) -> None:
    """As a leader of ours would: records with their offsets and checksums, one entry each."""
    filling = b"." * (BODY - 6)
    last = next(one.body for one in reversed(all_entries(ledger)) if filling in one.body)
    at = last.index(filling) - 6
    (queue_offset,) = unpack_from(">q", last, 20)
    bodies, end = [], ledger.end_pos
    for number in range(1, count + 1):
        body = bytearray(last)
        pos = ledger.place(len(body), end)
        end = pos + 48 + len(body)
        body[at : at + 6] = b"%06d" % (first - 1 + number)
        pack_into(">I", body, 8, crc32(body[at : at + BODY]) & 0x7FFFFFFF)
        pack_into(">qq", body, 20, queue_offset + number, pos + 48)
        bodies.append(bytes(body))
    ledger.append(ledger.end_term, bodies)


def numbers(member: Member) -> list[int]:
    """What a member serves of queue 0; Java takes pipelined requests in any order."""
    with Wire(member.server.address, 20) as wire:
        return sorted(int(record.body[:6]) for record in wire.pull_all(TOPIC, 0))


def test_stores_of_java_and_ours_are_one(rig: Rig, tmp_path: Path) -> None:
    """
    Java writes several files; ours opens each member's (one was killed) and finds the same end and
    the same bytes; ours appends across a file's end and loses the index; Java goes on with that.
    """
    group = Group(rig, (True, True, True))
    send(group, 0, COUNT)
    end = group.wait_same()
    group.kill("n2")
    group.stop()
    group.assert_same_files(end)

    members = list(group.members.values())
    for member in members:
        copy = tmp_path / "copy" / member.name
        shutil.copytree(folder(member), copy)
        assert_rewritten_same(copy, tmp_path / "rewritten" / member.name)
        ledger = opened(copy)
        assert ledger.end_pos == end
        assert ledger.committed_index <= ledger.end_index
        term = TermFile(RealDisk(), str(copy)).load()
        assert term == decode_term((copy / "currterm").read_bytes())
        assert term.term >= ledger.end_term
        ledger.close()

    more = 2 * FILE_SIZE // BODY
    for member in members:
        ledger = opened(folder(member))
        append_ours(ledger, COUNT, more)
        ledger.commit(ledger.end_index)
        ledger.sync(thorough=True)
        end = ledger.end_pos
        ledger.close()
    shutil.rmtree(folder(members[1]) / "index")
    opened(folder(members[1])).close()
    assert data(members[0], end) == data(members[1], end) == data(members[2], end)
    assert index(members[0], end) == index(members[1], end) == index(members[2], end)

    for member in members:
        group.start(member.name, java=True, wait=False)
    for member in group.members.values():
        group.until_ready(member)
    send(group, COUNT + more, 10)
    end = group.wait_same()
    wanted = list(range(COUNT + more + 10))
    for member in group.members.values():
        rig.until(lambda member=member: len(numbers(member)) >= len(wanted), 30, "all readable")
        assert numbers(member) == wanted
    group.stop()
    group.assert_same_files(end)
    for member in members:
        ledger = opened(folder(member))
        assert ledger.end_pos == end
        ledger.close()
