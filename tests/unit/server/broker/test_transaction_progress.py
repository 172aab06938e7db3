"""How far the transaction checks are, in the table and in memory."""

from rmq_ha.base.model.topics import HALF_TOPIC, OP_HALF_TOPIC
from rmq_ha.server.broker.tables.consumer_offsets import ConsumerOffsetManager
from rmq_ha.server.broker.transactions.messages import GROUP
from rmq_ha.server.broker.transactions.progress import CheckProgress


class Progress:
    """Of queue 0, with a log that is safe up to where the test says."""

    def __init__(self) -> None:
        self.safe = 0
        self.offsets = ConsumerOffsetManager(None, None, "")  # type: ignore[arg-type]
        self.checks = CheckProgress(self.offsets, lambda log_end: log_end <= self.safe)

    def commit(self, offset: int, log_end: int) -> None:
        self.checks.commit(0, {HALF_TOPIC: offset}, log_end)

    @property
    def known(self) -> int:
        return self.checks.query(HALF_TOPIC, 0)

    @property
    def kept(self) -> int:
        """What another life would find."""
        return self.offsets.query(GROUP, HALF_TOPIC, 0)


def test_the_table_waits_for_the_log() -> None:
    """A crash must not take the op messages that the progress counts on."""
    it = Progress()
    it.commit(3, 100)
    assert (it.known, it.kept) == (3, -1)
    it.safe = 99
    it.commit(4, 200)
    assert (it.known, it.kept) == (4, -1)
    it.safe = 100
    it.commit(5, 300)
    assert (it.known, it.kept) == (5, 3)
    it.safe = 300
    it.commit(6, 300)
    assert (it.known, it.kept) == (6, 6)


def test_what_waited_when_the_checks_began_anew_is_forgotten() -> None:
    """Else the next life would go on behind transactions that nobody was asked about."""
    it = Progress()
    it.commit(10, 100)
    it.checks.set_back(0, {HALF_TOPIC: 0})
    assert (it.known, it.kept) == (0, 0)
    it.safe = 100
    it.commit(1, 200)
    assert (it.known, it.kept) == (1, 0)
    it.safe = 200
    it.commit(1, 200)
    assert (it.known, it.kept) == (1, 1)


def test_both_queues_begin_anew() -> None:
    """Half messages without their op messages would all be asked about once more, or never."""
    it = Progress()
    it.safe = 100
    it.checks.commit(0, {HALF_TOPIC: 9, OP_HALF_TOPIC: 7}, 100)
    it.checks.set_back(0, {HALF_TOPIC: 3, OP_HALF_TOPIC: 2})
    for topic, offset in ((HALF_TOPIC, 3), (OP_HALF_TOPIC, 2)):
        assert it.checks.query(topic, 0) == it.offsets.query(GROUP, topic, 0) == offset


def test_what_waited_in_another_life_as_master_is_forgotten() -> None:
    it = Progress()
    it.commit(10, 100)
    it.checks.begin()
    assert (it.known, it.kept) == (-1, -1)
    it.safe = 100
    it.commit(1, 200)
    assert (it.known, it.kept) == (1, -1)


def test_queues_wait_for_themselves() -> None:
    it = Progress()
    it.commit(10, 100)
    it.checks.commit(1, {HALF_TOPIC: 7}, 50)
    it.safe = 50
    it.checks.commit(1, {HALF_TOPIC: 8}, 60)
    assert (it.offsets.query(GROUP, HALF_TOPIC, 1), it.kept) == (7, -1)


def test_both_queues_are_written_together() -> None:
    """An op queue whose progress lags settles nothing twice; one that is ahead would ask anew."""
    it = Progress()
    it.safe = 100
    it.checks.commit(0, {HALF_TOPIC: 9, OP_HALF_TOPIC: 7}, 100)
    for topic, offset in ((HALF_TOPIC, 9), (OP_HALF_TOPIC, 7)):
        assert it.checks.query(topic, 0) == it.offsets.query(GROUP, topic, 0) == offset


def test_where_nothing_was_dealt_with_the_table_gets_no_offset() -> None:
    """A broker without transactions has none in its file."""
    it = Progress()
    it.safe = 100
    it.checks.commit(0, {HALF_TOPIC: 0, OP_HALF_TOPIC: 0}, 100)
    assert it.offsets.table == {}
