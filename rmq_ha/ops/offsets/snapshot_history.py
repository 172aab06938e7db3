"""Keeps snapshots as `DIR/ts=<ms>/<role>-<broker>-<id>.json.gz`: a history of replicas."""

import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import NamedTuple

import msgspec

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.host.files import listing, put, read_small
from rmq_ha.ops.offsets.findings import camel_case
from rmq_ha.ops.offsets.model import SLAVE_ROLE, Fact, Snapshot
from rmq_ha.ops.offsets.pairing import Pairing, is_right, pair


def _member(name: str) -> str:
    """Return a field's JSON member: `is_resting` becomes `resting`, `broker_id` `brokerId`."""
    return camel_case(name.removeprefix("is_"))


_OF_SNAPSHOT = {
    field.name: _member(field.name) for field in fields(Snapshot) if field.name != "facts"
}
"""
For each field of a snapshot except its facts, the member that each line of the file has for it.
"""
_OF_FACT = {name: _member(name) for name in Fact._fields}
_DAMAGE = (OSError, EOFError, zlib.error, ValueError, TypeError, LookupError, AttributeError)


def is_slave(snapshot: Snapshot) -> bool:
    """Return whether a snapshot is a slave's, by its role, or without one by its broker id."""
    return snapshot.role == SLAVE_ROLE or (snapshot.role is None and bool(snapshot.broker_id))


def name_of(snapshot: Snapshot) -> str:
    """Return the path of a snapshot below the directory of a history."""
    role = "slave" if is_slave(snapshot) else "master"
    broker = "".join(char if char.isalnum() or char in "-_." else "_" for char in _broker(snapshot))
    number = "x" if snapshot.broker_id is None else snapshot.broker_id
    return f"ts={snapshot.began}/{role}-{broker}-{number}.json.gz"


def _broker(snapshot: Snapshot) -> str:
    return snapshot.broker or snapshot.place


def encode(snapshot: Snapshot) -> bytes:
    """
    Return a snapshot as compressed JSON.

    Each line has all fields of the snapshot, and one of its facts.
    """
    taken = {
        member: msgspec.to_builtins(getattr(snapshot, name), order="deterministic")
        for name, member in _OF_SNAPSHOT.items()
    }
    head = json.dumps(taken).removesuffix("}")
    facts = (
        json.dumps(dict(zip(_OF_FACT.values(), fact, strict=True))).removeprefix("{")
        for fact in snapshot.facts
    )
    lines = [f"{head}, {fact}" for fact in facts] or [head + "}"]
    return gzip.compress("\n".join(lines).encode(), 6, mtime=0)


def decode(data: bytes, name: str) -> Snapshot:
    """
    Read a snapshot that `encode` wrote.

    A snapshot that another version wrote may lack fields. Their values are then not known, which
    counts as a fault.

    :raises CannotDecide: the data are something else.
    """
    try:
        rows = list(map(json.loads, gzip.decompress(data).splitlines()))
        told = {
            field: rows[0][member] for field, member in _OF_SNAPSHOT.items() if member in rows[0]
        }
        if isinstance(told["kinds"], str):  # version 0.1 wrote a text with commas
            told["kinds"] = told["kinds"].split(",")
        facts = [[*map(row.get, _OF_FACT.values())] for row in rows if _OF_FACT["kind"] in row]
        snapshot = msgspec.convert({**told, "facts": facts}, Snapshot)
    except _DAMAGE as error:
        raise CannotDecide(f"{name} is no snapshot ({error}); remove it") from None
    unsaid = [member for field, member in _OF_SNAPSHOT.items() if field not in told]
    if not unsaid:
        return snapshot
    fault = ("SNAPSHOT_INCOMPLETE", f"{name} does not say {', '.join(unsaid)}")
    return replace(snapshot, faults=(*snapshot.faults, fault))


def append(snapshot: Snapshot, directory: str) -> str:
    """
    Add a snapshot to a history, whole or not at all.

    :returns: the file.
    :raises CannotDecide: the file cannot be written.
    """
    path = f"{directory.rstrip('/')}/{name_of(snapshot)}"
    try:
        put(path, encode(snapshot))
    except OSError as error:
        raise CannotDecide(f"{path} cannot be written: {error}") from None
    return path


def append_pairings(pairings: Sequence[Pairing], directory: str) -> None:
    """
    Add the snapshots of a master and its slaves to a history.

    A store does not say its role; then it gets the one that the user named it by.

    :raises CannotDecide: a file cannot be written.
    """
    taken = [(pairings[0].masters[-1], "ASYNC_MASTER")]
    taken += [(pairing.slave, SLAVE_ROLE) for pairing in pairings]
    for snapshot, role in taken:
        append(replace(snapshot, role=snapshot.role or role), directory)


class SnapshotFile(NamedTuple):
    """A snapshot of a `master` or `slave` in a history, begun at `moment`, ms."""

    moment: int
    role: str
    path: str

    @property
    def broker(self) -> str:
        """The broker's name in the file's name; for a store without a name, its place."""
        name = self.path.rpartition("/")[2].removeprefix(f"{self.role}-")
        return name.removesuffix(".json.gz").rpartition("-")[0]

    def read(self) -> Snapshot:
        """
        Read the snapshot.

        :raises CannotDecide: the file is no snapshot.
        """
        return decode(read_small(self.path), self.path)


def snapshot_files(directory: str, role: str) -> list[SnapshotFile]:
    """
    Return the snapshots of a role, oldest first.

    :param role: `master` or `slave`.
    :raises CannotDecide: there is none.
    """
    root = directory.rstrip("/")
    files = []
    for entry in listing(root):
        moment = entry.name.removeprefix("ts=")
        if moment.isdecimal() and moment != entry.name:
            files += [
                SnapshotFile(int(moment), role, f"{root}/{entry.name}/{file.name}")
                for file in listing(f"{root}/{entry.name}")
                if file.name.startswith(f"{role}-") and file.name.endswith(".json.gz")
            ]
    if not files:
        raise CannotDecide(
            f"snapshot:{directory} holds none of a {role}: `rmqha-admin snapshot PLACE --to"
            f" {directory}` makes one"
        )
    return sorted(files)


def of_one_broker(
    masters: Sequence[SnapshotFile], slaves: Sequence[SnapshotFile]
) -> tuple[Sequence[SnapshotFile], Sequence[SnapshotFile]]:
    """
    Return the snapshots of the broker that both lists have. Snapshots of stores without a name
    count for any broker.

    :raises CannotDecide: the slaves are of several brokers, and the answer would hold for one only.
    """
    names = {item.broker for item in slaves}
    common = names & {item.broker for item in masters}
    newest = {item.broker: item for item in slaves}
    if len(names) > 1 and len({item.read().broker for item in newest.values()}) > 1:
        raise CannotDecide(
            f"these are snapshots of slaves of several brokers ({', '.join(sorted(names))}): keep"
            " those of each broker in a directory of its own"
        )
    if not common:
        return masters, slaves
    return [item for item in masters if item.broker in common], slaves


def kept_pairing(of_master: str, of_slave: str, skew_ms: int) -> Pairing:
    """
    Choose the newest snapshot of a slave that is followed by a snapshot of its master.

    The result also has the master's snapshots before and after it. If no snapshot of the slave is
    followed by one of the master, the slave's newest snapshot is taken.

    :raises CannotDecide: the master or the slave has no snapshot.
    """
    masters, slaves = of_one_broker(
        snapshot_files(of_master, "master"), snapshot_files(of_slave, "slave")
    )
    newest = masters[-1].moment
    chosen = next((item for item in reversed(slaves) if item.moment <= newest), slaves[-1])
    slave = chosen.read()
    old = [item for item in masters if item.moment <= slave.began - skew_ms]
    window = [item for item in masters if not old or item.moment >= old[-1].moment]
    after = next((item.moment for item in window if item.moment >= slave.ended), newest)
    samples = [item.read() for item in window if item.moment <= after]
    if is_right(samples, slave):
        return Pairing(samples, slave, True)
    return pair(samples, slave, skew_ms)
