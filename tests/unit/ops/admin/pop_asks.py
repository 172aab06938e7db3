"""A client that pops for the group G, without being a member of it."""

from __future__ import annotations

from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_headers import AckHeader, PopAnswerHeader, PopHeader
from rmq_ha.base.wire.pop_receipt import PopReceipt
from rmq_ha.client.connection.asks import Asker
from rmq_ha.client.lookup.asking import expect_any
from tests.unit.client.sim_cluster import SimCluster

HOUR_MS = 3_600_000


class Popper:
    """
    Pops messages of one topic, whose queue is 0.

    :param machine: the name of the broker's machine.
    """

    def __init__(
        self, cluster: SimCluster, machine: str, topic: str = "T", group: str = "G"
    ) -> None:
        self._cluster = cluster
        self._machine = machine
        self._topic, self._group = topic, group
        self._client = cluster.client()

    def ask(self, code: int, ext: dict[str, str], body: bytes | None = None) -> RemotingCommand:
        asking = expect_any(
            RemotingCommand(code, ext, body=body), [self._cluster.address(self._machine)]
        )
        answer: RemotingCommand = self._cluster.wait(Asker(self._client).run(asking))
        return answer

    def pop(self, most: int, invisible_ms: int = 600_000) -> PopAnswerHeader:
        header = PopHeader(
            consumer_group=self._group,
            topic=self._topic,
            queue_id=-1,
            max_msg_nums=most,
            invisible_time=invisible_ms,
        )
        return PopAnswerHeader.read(self.ask(RequestCode.POP_MESSAGE, header.ext()).ext)

    def ack(self, popped: PopAnswerHeader, *offsets: int) -> None:
        name = self._cluster.brokers[self._machine].identity.broker_name
        for offset in offsets:
            receipt = PopReceipt(
                0, popped.pop_time, popped.invisible_time, popped.revive_qid, 0, name, 0, offset
            )
            header = AckHeader(self._group, self._topic, 0, receipt.encode(), offset)
            self.ask(RequestCode.ACK_MESSAGE, header.ext())
