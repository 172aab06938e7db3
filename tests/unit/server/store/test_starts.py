"""Whether a record starts where a client says that one does. Spec: remoting.md, 4.7 and 7.6."""

import pytest

from rmq_ha.base.model.flags import TRANSACTION_PREPARED
from rmq_ha.base.model.message import draft_of
from rmq_ha.server.store.log.append import GroupEncoder
from rmq_ha.server.store.log.tail import SLICE

LOG = "/store/commitlog/00000000000000000000"


def put(store, *messages):
    results = []
    store.put_many(list(messages), results.extend)
    return [result.append for result in results]


def body_with_a_record(message, at, sys_flag=0):
    """A body that holds a whole record, which says of itself that it begins at that place."""
    inner = message(b"inner")
    inner.sys_flag = sys_flag
    segments = GroupEncoder(65536, [1000]).encode([draft_of(inner)], at, 1 << 22, 1).segments
    return segments[0].data


@pytest.mark.parametrize("asked", [(0, SLICE), (299, 0), (SLICE + 1, 299)])
def test_each_record_of_the_log_does(simulated, message, asked):
    """The first one, at 0, as well; answers may be quicker than the turn that dispatches them."""
    store = simulated.open()
    places = put(store, *[message(b"%d" % number) for number in range(300)])
    assert store.dispatcher.position == 0
    for place in [places[number] for number in asked]:
        record = store.record_starting_at(place.physical_offset)
        assert record == store.log.read(place.physical_offset, place.size)
    assert store.dispatcher.position == places[-1].next_offset


@pytest.mark.parametrize("offset", [-1, 1, 1 << 40])
def test_no_other_place_does(simulated, message, offset):
    store = simulated.open()
    put(store, message())
    assert store.record_starting_at(offset) is None
    assert store.unqueued_record_at(offset) is None


def test_bytes_of_a_body_do_not(simulated, message):
    """However right they are: a client wrote them."""
    store = simulated.open()
    at = put(store, message())[0].next_offset + 88
    put(store, message(body_with_a_record(message, at)))
    simulated.turn()
    assert store.record_at(at) is not None
    assert store.record_starting_at(at) is None
    assert store.unqueued_record_at(at) is None


def test_a_record_with_another_number_than_its_place(simulated, message):
    """Where a gap was closed: its physical offset finds it in the queue."""
    store = simulated.open()
    places = put(store, message(b"a"), message(b"b"), message(b"c"))
    simulated.turn()
    file = simulated.disk.open(LOG, 65536)
    for number in (7, 0):
        file.pwrite(number.to_bytes(8, "big"), places[1].physical_offset + 20)
        record = store.record_starting_at(places[1].physical_offset)
        assert record is not None
        assert record[20:28] == number.to_bytes(8, "big")


def test_a_record_between_damaged_units_does(simulated, message):
    """Its own unit says so, where a search in the queue goes astray."""
    store = simulated.open()
    places = put(store, *[message(b"%d" % number) for number in range(9)])
    simulated.turn()
    queue = simulated.disk.open("/store/consumequeue/TopicA/0/" + "0" * 20, 800)
    queue.pwrite(bytes(80), 80)
    assert store.record_starting_at(places[8].physical_offset) is not None


def test_a_record_of_a_deleted_topic_does_not(simulated, message):
    store = simulated.open()
    place = put(store, message())[0].physical_offset
    simulated.turn()
    store.clean_unused_topics([])
    assert store.record_starting_at(place) is None


def test_prepared_records_are_in_no_queue(simulated, message):
    """They are shown, as what they are, and no others: neither committed nor moved ones."""
    store = simulated.open()
    half = message(b"half")
    half.sys_flag = TRANSACTION_PREPARED
    prepared, plain = put(store, half, message())
    simulated.turn()
    assert store.record_starting_at(prepared.physical_offset) is None
    record = store.unqueued_record_at(prepared.physical_offset)
    assert record == store.log.read(prepared.physical_offset, prepared.size)
    assert store.unqueued_record_at(plain.physical_offset) is None
    at = plain.next_offset + 88
    put(store, message(body_with_a_record(message, at + 1, TRANSACTION_PREPARED)))
    assert store.unqueued_record_at(at) is None
