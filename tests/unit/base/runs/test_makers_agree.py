"""
The native maker gives what the pure one gives, byte for byte, function by function.

`tests/unit/base/runs/test_pairs_agree.py` compares whole pairs of brokers.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_ha.base.runs import pure
from rmq_ha.base.runs.face import FACE_VERSION
from rmq_ha.base.wire.frame import encode_frame
from rmq_ha.client.lookup.requests import send_request
from tests.kits.draws import EXPLORES
from tests.unit.base.runs.agreement import agree_on_chunk, agree_on_stretch, same_sends
from tests.unit.base.runs.odd_records import stretch
from tests.unit.base.runs.odd_sends import ODDITIES, chunk, ordinary_send, send_with

kernel = pytest.importorskip("rmq_ha_kernel", reason="`pip install ./kernel` was not run")

EXAMPLES = settings(max_examples=2000 if EXPLORES else 60)
SEEDS = st.integers(0, (1 << 32) - 1)

STOCK_HEADERS = {
    "Java 4.9": (
        b'{"code":310,"extFields":{"a":"PG","b":"TopicA","c":"TBW102","d":"4","e":"0","f":"0",'
        b'"g":"1795246971401","h":"0","i":"UNIQ_KEY\\u00017F000001\\u0002WAIT\\u0001true\\u0002'
        b'TAGS\\u0001TagA","j":"0","k":"false","m":"false"},"flag":0,"language":"JAVA",'
        b'"opaque":12,"serializeTypeCurrentRPC":"JSON","version":407}'
    ),
    "Java 5": (
        b'{"code":310,"extFields":{"a":"PG","b":"TopicA","c":"TBW102","d":"4","e":"0","f":"0",'
        b'"g":"1795246971401","h":"0","i":"UNIQ_KEY\\u00017F000001\\u0002WAIT\\u0001true","j":"0",'
        b'"k":"false","m":"false","n":"broker-a"},"flag":0,"language":"JAVA","opaque":12,'
        b'"serializeTypeCurrentRPC":"JSON","version":475}'
    ),
    "Go": (
        b'{"code":310,"language":"GO","version":317,"opaque":7,"flag":0,"remark":"","extFields":'
        b'{"a":"PG","b":"TopicA","c":"TBW102","d":"4","e":"0","f":"0","g":"1795246971401","h":"0",'
        b'"i":"UNIQ_KEY\\u00017F000001\\u0002WAIT\\u0001true\\u0002","j":"0","k":"false",'
        b'"l":"0","m":"false"}}'
    ),
    "one-way": (
        b'{"code":310,"extFields":{"a":"PG","b":"TopicA","e":"0","i":"","m":"false"},"flag":2,'
        b'"language":"JAVA","opaque":12,"serializeTypeCurrentRPC":"JSON","version":407}'
    ),
    "load generator": (
        b'{"code":310,"extFields":{"a":"load","b":"TopicA","c":"TBW102","d":"8","e":"3","f":"0",'
        b'"g":"1795246971401","h":"0","i":"UNIQ_KEY\\u00010A","j":"0","k":"false","m":"false"},'
        b'"flag":0,"language":"JAVA","opaque":         7,"serializeTypeCurrentRPC":"JSON",'
        b'"version":407}'
    ),
    "C++": (
        b'{"code":310,"extFields":{"a":"PG","b":"TopicA","c":"TBW102","d":"4","e":"0","f":"0",'
        b'"g":"1795246971401","h":"0","i":"KEYS\\u0001k\\u0002UNIQ_KEY\\u00017F\\u0002WAIT\\u0001'
        b'true\\u0002","j":"0","k":"0","m":"false"},"flag":0,"language":"CPP","opaque":3,'
        b'"serializeTypeCurrentRPC":"JSON","version":403}\n'
    ),
    "long names": (
        b'{"code":10,"extFields":{"queueId":"0","topic":"TopicA","producerGroup":"p","sysFlag":"0",'
        b'"bornTimestamp":"5","flag":"0","properties":"","reconsumeTimes":"0","batch":"false"},'
        b'"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":407}'
    ),
}


def frame_of(header: bytes, body: bytes = b"body") -> bytes:
    length = (4 + len(header) + len(body)).to_bytes(4, "big")
    return length + len(header).to_bytes(4, "big") + header + body


def test_the_kernel_is_made_for_this_face():
    assert kernel.VERSION == FACE_VERSION == pure.VERSION


@given(SEEDS)
@EXAMPLES
def test_chunks_of_sends(seed):
    random = Random(seed)
    before = random.randbytes(random.choice((0, 0, 5)))
    agree_on_chunk(kernel, before + chunk(random), random, len(before))


@pytest.mark.parametrize("name", ODDITIES)
def test_a_send_with_an_oddity_among_ordinary_ones(name):
    random = Random(name)
    for _ in range(100 if EXPLORES else 12):
        ordinary = ordinary_send(random).frame(random)
        agree_on_chunk(kernel, send_with(name, random) + ordinary, random)
        agree_on_chunk(kernel, ordinary + send_with(name, random) + ordinary, random)


@given(SEEDS)
@EXAMPLES
def test_broken_bytes_of_sends(seed):
    random = Random(seed)
    data = bytearray(chunk(random, 3, 0.1))
    for _ in range(random.randint(1, 3)):
        change = random.randrange(3)
        at = random.randrange(len(data))
        if change == 0:
            data[at] = random.choice(b'\x00\x01\x02 "\\{}:,0-9\x7f\xff')
        elif change == 1:
            del data[at : at + random.randint(1, 5)]
        else:
            data[at:at] = random.choice((b" ", b'"', b"\\", b"\x80", b"0", b"\x00\x00"))
        if not data:
            break
    agree_on_chunk(kernel, bytes(data), random)


@given(SEEDS)
@EXAMPLES
def test_ordinary_sends_are_all_taken(seed):
    random = Random(seed)
    frames = [ordinary_send(random).frame(random) for _ in range(random.randint(1, 70))]
    data = b"".join(frames) + frames[0][: random.randrange(len(frames[0]))]
    native, plain = kernel.cut(data, 0, 65_536), pure.cut(data, 0, 65_536)
    assert len(native) == len(plain) == len(frames)
    same_sends(native, plain, random)
    assert native.end == plain.end == sum(map(len, frames))


@pytest.mark.parametrize("client", STOCK_HEADERS)
def test_what_stock_clients_send_is_taken(client):
    data = frame_of(STOCK_HEADERS[client]) * 3
    is_cpp = client == "C++"  # its `unitMode` is a number: left to the general way
    assert len(pure.cut(data, 0, 65_536)) == 3
    native = kernel.cut(data, 0, 65_536)
    assert is_cpp or len(native) == 3


def test_what_our_own_client_sends_is_taken():
    request = send_request("g", "TopicA", 0, b"body", "UNIQ_KEY\x017F\x02TAGS\x01标签", 5)
    assert len(kernel.cut(encode_frame(request) * 3, 0, 65_536)) == 3


@given(SEEDS)
@EXAMPLES
def test_stretches_of_a_log(seed):
    random = Random(seed)
    data, position = stretch(random)
    agree_on_stretch(kernel, data, position, random)


@given(SEEDS)
@EXAMPLES
def test_stretches_of_a_log_of_dledger(seed):
    random = Random(seed)
    data, position = stretch(random, gap=48)
    agree_on_stretch(kernel, data, position, random, 48)


@given(SEEDS)
@EXAMPLES
def test_broken_bytes_of_a_log(seed):
    random = Random(seed)
    data, position = stretch(random, 4)
    broken = bytearray(data or b"\0")
    for _ in range(random.randint(1, 3)):
        broken[random.randrange(len(broken))] ^= 1 << random.randrange(8)
    agree_on_stretch(kernel, bytes(broken), position, random)


def test_plain_records_are_all_read():
    random = Random(5)
    for _ in range(20):
        data, position = stretch(random, 30, 0)
        native = kernel.walk(data, 0, position, 1 << 40, 1 << 60, True, 0)
        plain = pure.walk(data, 0, position, 1 << 40, 1 << 60, True, 0)
        assert list(native) == list(plain)


@pytest.mark.parametrize("at", [-1, 1 << 64])
def test_a_wrong_place_is_the_callers_fault(at):
    with pytest.raises(OverflowError):
        kernel.cut(b"", at, 65_536)


def test_places_beyond_the_data_hold_nothing():
    data, position = stretch(Random(1), 2, 0)
    for at in (len(data), len(data) + 1, (1 << 64) - 1, (1 << 64) - 40):
        assert kernel.cut(data, at, 65_536) is None
        assert kernel.walk(data, at, position, 9, 9, False, 0) is None
    assert kernel.walk(data, 0, -(1 << 63), 9, 9, False, 48) is None
