"""A producer of transactions, and a simulated broker that asks it about those it left open."""

from collections.abc import Callable
from typing import Any

from rmq_ha.base.model.flags import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rmq_ha.base.model.topics import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.store_format.commitlog import Record, decode_records
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.unit.server.broker.sim_broker import SimBroker

GROUP = "TPG"
TOPIC = "Paid"
INTERVAL_S = 2.0
COMMIT, ROLLBACK, UNKNOWN = TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, 0

Decide = Callable[[str], int | None]


class TransactionBroker(SimBroker):
    """
    A broker with quick checks and a producer that answers them.

    :ivar asked: unique key and TRANSACTION_CHECK_TIMES of each question.
    :ivar decide: what the producer answers about a unique key; None: nothing at all.
    """

    def __init__(self, seed: int = 1) -> None:
        super().__init__(seed)
        broker = self.configuration.broker
        broker.transaction_check_interval = int(INTERVAL_S * 1000)
        broker.transaction_time_out = 3000
        broker.transaction_check_max = 3
        self.decide: Decide = lambda key: None
        self.asked: list[tuple[str, int]] = []
        self.questions: list[RemotingCommand] = []
        self.client.routes[RequestCode.CHECK_TRANSACTION_STATE] = self._asked

    def connect(self) -> None:
        """The producer's heartbeat."""
        body = {"clientID": "c1", "producerDataSet": [{"groupName": GROUP}]}
        self.call(RemotingCommand(RequestCode.HEART_BEAT, {}, fastjson.encode(body)))

    def run(self, seconds: float) -> None:
        self.world.clock.run_for(seconds)

    def rounds(self, count: int = 1) -> None:
        """Run until so many more rounds of the check are over."""
        checks = self.broker.transaction_checks
        wanted = checks.rounds + count
        self.world.clock.run_while(lambda: checks.rounds < wanted, 1000)
        self.run(0.2)

    def half(self, key: str, **properties: str) -> dict[str, str]:
        """Send a half message; what its producer needs to end it."""
        request = self.message(
            key.encode(), TOPIC, TRAN_MSG="true", PGROUP=GROUP, UNIQ_KEY=key, WAIT="true",
            **properties,
        )  # fmt: skip
        answer = self.call(request)
        assert answer.code in (0, 11), answer
        assert answer.ext is not None
        return {
            "producerGroup": GROUP,
            "tranStateTableOffset": answer.ext["queueOffset"],
            "commitLogOffset": str(int(answer.ext["msgId"][-16:], 16)),
            "msgId": key,
            "transactionId": key,
        }

    def end(self, place: dict[str, str], decision: int) -> RemotingCommand:
        return self.call(RemotingCommand(37, {**place, "commitOrRollback": str(decision)}))

    def _asked(self, channel: Channel, request: RemotingCommand) -> None:
        ext = request.ext or {}
        (record,) = decode_records(request.body or b"")
        assert (record.topic, record.queue_id) == (TOPIC, 0)
        key = ext["msgId"]
        self.questions.append(request)
        self.asked.append((key, int(record.properties["TRANSACTION_CHECK_TIMES"])))
        decision = self.decide(key)
        if decision is not None:
            answer = {
                "producerGroup": GROUP,
                "tranStateTableOffset": ext["tranStateTableOffset"],
                "commitLogOffset": ext["commitLogOffset"],
                "commitOrRollback": str(decision),
                "fromTransactionCheck": "true",
                "msgId": key,
                "transactionId": ext["transactionId"],
            }
            self.client.oneway(
                f"{self.host.ip}:{LISTEN_PORT}", RemotingCommand(37, answer, flag=FLAG_ONEWAY)
            )

    # What the store holds

    def records(self, topic: str) -> list[Record]:
        """All messages in queue 0 of a topic."""
        found: list[Record] = []
        store = self.broker.store
        offset = store.min_offset_in_queue(topic, 0)
        while True:
            result = store.get_message("test", topic, 0, offset, 32, None)
            if not result.messages:
                return found
            found += decode_records(b"".join(result.messages))
            offset = result.next_begin_offset

    def visible(self) -> list[str]:
        """The unique keys that consumers can get, in order."""
        self.run(0.1)
        return [record.properties["UNIQ_KEY"] for record in self.records(TOPIC)]

    def discarded(self) -> list[str]:
        records = self.records(TRANS_CHECK_MAX_TIME_TOPIC)
        return [record.properties["UNIQ_KEY"] for record in records]

    def progress(self) -> tuple[int, int]:
        """How far the checks are with the half and the op queue; -1 without."""
        progress = self.broker.transaction_checks._progress
        return progress.query(HALF_TOPIC, 0), progress.query(OP_HALF_TOPIC, 0)

    def kept_progress(self) -> tuple[int, int]:
        """What the next life, or a slave, knows of that."""
        offsets = self.broker.consumer_offsets
        half, op = (
            offsets.query("CID_RMQ_SYS_TRANS", topic, 0) for topic in (HALF_TOPIC, OP_HALF_TOPIC)
        )
        return half, op

    def ends(self) -> tuple[int, int]:
        """The ends of the half and of the op queue."""
        store = self.broker.store
        return (
            store.max_offset_in_queue(HALF_TOPIC, 0),
            store.max_offset_in_queue(OP_HALF_TOPIC, 0),
        )

    # Lives

    def crash(self, *, power: bool = False) -> None:
        """The broker's process, or machine, is gone."""
        self.host.crash(power=power)

    def restart(self) -> None:
        """Begin another life on the same disk, and have the producer connect again."""
        if not self.host.is_running:
            self.host.restart()
        self.start()
        self.run(1.0)
        self.connect()


def started(seed: int = 1, **settings: Any) -> TransactionBroker:
    """
    A broker that runs, with a producer connected.

    :param settings: of its BrokerConfig.
    """
    broker = TransactionBroker(seed)
    for name, value in settings.items():
        setattr(broker.configuration.broker, name, value)
    broker.start()
    broker.connect()
    return broker
