"""
Pairs of whole brokers that get odd sends, and what they make of them: `DIRECTORY STEPS SEED...`.

The process prints a line of JSON for each seed: digests of all answers, and of commit log, queues
and index of master and slave; how many sends there were; which maker worked, and how often each of
its functions has failed. Two processes with the same seed and other makers have to print the same
digests. The clock is moved by this script alone, so that it does not matter in how many turns a
broker does its work. Answers are compared without the order of their JSON members: it is another
one in the general way, and a maker may leave a send to it that the other one takes.

The environment variable `RMQ_HA_PANICS` names places of a kernel with planted faults. At each step
one of them, drawn at random, panics as often as it is reached.
"""

import json
import os
import sys
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from hotpath import Machine, Wires, topic_frame

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.runs.maker import CHOICE, faults
from rmq_ha.base.wire.frame import FrameReader
from tests.unit.base.runs.odd_sends import ODDITIES, ordinary_send, send_with

STEP_SECONDS = 0.02
TOPICS = ("TopicA", "TopicB", "a_b-C|d")
BREAKING = {"cut_off", "long_header", "other_frame"}
"""They close the connection; a run with many of them would compare little."""


def small_files(configuration: BrokerConfiguration) -> None:
    """So that logs, queues and index go on in new files."""
    store = configuration.store
    store.mapped_file_size_commit_log = 1 << 15
    store.mapped_file_size_consume_queue = 20 * 150
    store.max_hash_slot_num, store.max_index_num = 97, 2000
    store.max_message_size = 4096


class PairRun:
    """A master, its slave and one client."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = Random(seed)
        self.panics = os.environ.get("RMQ_HA_PANICS", "").split(",")
        self.luck = Random(seed)  # for the panics alone: the sends of a seed stay the same
        self.wires = Wires()
        self.answers = sha256()
        self.sends = 0
        roles = {"master": BrokerRole.SYNC_MASTER, "slave": BrokerRole.SLAVE}
        self.machines = {
            name: Machine(str(directory / name), self.wires, role, small_files)
            for name, role in roles.items()
        }
        for machine in self.machines.values():
            machine.clock.turn_seconds = 0.0
            machine.clock.now = 2000.0
        self.client: Any = None
        for topic in TOPICS:
            self.give(topic_frame(8).replace(b'"load"', json.dumps(topic).encode()))

    def give(self, data: bytes) -> None:
        """Let the client send these bytes, cut anywhere, and both brokers do all that follows."""
        at = 0
        while at < len(data):
            if self.client is None or not self.client.channel.is_open:
                self.client = self.machines["master"].connect()
            size = self.random.randint(1, 3 * len(data))
            self.step(data[at : at + size])
            at += size

    def step(self, data: bytes) -> None:
        master, slave = self.machines.values()
        if any(self.panics):
            CHOICE.module.plant_panic(self.luck.choice(self.panics))
        for machine in self.machines.values():
            machine.clock.now += STEP_SECONDS
        master.step((self.client, data))
        up, down = self.wires.master, self.wires.slave
        for _ in range(20):
            slave.step((down, up.transport.take()))
            master.step((up, down.transport.take()))
            if not (up.transport.out or down.transport.out):
                break
        for end in master.ends:
            for _, header, body in FrameReader().receive_data(end.take()):
                answer = json.dumps(json.loads(header), sort_keys=True)
                self.answers.update(answer.encode() + b"\0" + body + b"\0")

    def chunk(self) -> bytes:
        frames = []
        for _ in range(self.random.choice((1, 2, 5, 20))):
            name = self.random.choice(sorted(ODDITIES))
            if self.random.random() > 0.2 or (name in BREAKING and self.random.random() > 0.1):
                frames.append(ordinary_send(self.random).frame(self.random))
            else:
                frames.append(send_with(name, self.random))
        self.sends += len(frames)
        return b"".join(frames)

    def run(self, steps: int) -> dict[str, Any]:
        for _ in range(steps):
            self.give(self.chunk())
        for _ in range(5):
            self.step(b"")
        told: dict[str, Any] = {"answers": self.answers.hexdigest(), "sends": self.sends}
        for name, machine in self.machines.items():
            store = machine.store
            assert store.dispatcher.bytes_behind <= 0, (name, store.dispatcher.bytes_behind)
            told[f"{name}.end"] = store.log.max_offset
            store.close()
        return told


def digest_of(directory: Path) -> str:
    """
    Return a digest of the names and the contents of all files below a directory.

    A file of zeros does not count: a master makes the next file of its log ahead.
    """
    digest = sha256()
    for path in sorted(directory.rglob("*")):
        if path.is_file() and (data := path.read_bytes()).strip(b"\0"):
            digest.update(str(path.relative_to(directory)).encode() + b"\0")
            digest.update(data)
    return digest.hexdigest()


def main() -> None:
    root, steps = Path(sys.argv[1]), int(sys.argv[2])
    for seed in sys.argv[3:]:
        directory = root / seed
        told = {"maker": CHOICE.name, "seed": seed} | PairRun(int(seed), directory).run(steps)
        for name in ("master", "slave"):
            for part in ("commitlog", "consumequeue", "index"):
                told[f"{name}.{part}"] = digest_of(directory / name / part)
        assert told["master.commitlog"] == told["slave.commitlog"], seed
        print(json.dumps(told | {"faults": faults()}))


if __name__ == "__main__":
    main()
