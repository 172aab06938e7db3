"""What a pull asks for, however its numbers are written."""

import pytest
from msgspec.structs import replace

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.flags import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from rmq_ha.server.broker.processors.pull_header import PullHeader, pull_header

NUMBERS = {
    "queueId": 2147483647,
    "maxMsgNums": 32,
    "sysFlag": PULL_COMMIT_OFFSET | PULL_SUSPEND | PULL_SUBSCRIPTION,
    "queueOffset": 9223372036854775807,
    "commitOffset": 7,
    "suspendTimeoutMillis": 15000,
    "subVersion": 1700000000000,
}
TEXTS = {"consumerGroup": "G", "topic": "T"}
WORDS = {name: str(value) for name, value in NUMBERS.items()}
WANTED = PullHeader("G", "T", 2147483647, 32, 7, 9223372036854775807, 7, 15000, 0, None, None)


def ext(**odd: str) -> dict[str, str]:
    return {**TEXTS, **WORDS, **odd}


def test_a_header_of_plain_numbers() -> None:
    assert pull_header(ext()) == replace(WANTED, sub_version=1700000000000)
    given = ext(subscription="*", expressionType="TAG")
    pull = pull_header(given)
    assert (pull.subscription, pull.expression_type) == ("*", "TAG")


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_with_its_sign_is_the_same(name: str) -> None:
    found = pull_header(ext(**{name: "+" + WORDS[name]}))
    assert found == WANTED  # with a subscription of its own, no other version counts


@pytest.mark.parametrize("name", ["queueId", "maxMsgNums", "sysFlag", "queueOffset"])
@pytest.mark.parametrize("value", ["", "x", "4.0", "1e2", " 4", "4_0", "٣", "9223372036854775808"])
def test_what_is_no_such_number_is_said(name: str, value: str) -> None:
    with pytest.raises(RequestRejected, match=f"the header field {name} "):
        pull_header(ext(**{name: value}))


@pytest.mark.parametrize("name", ["queueId", "maxMsgNums", "sysFlag"])
def test_32_bits_are_32_bits(name: str) -> None:
    with pytest.raises(RequestRejected, match="not a 32-bit number"):
        pull_header(ext(**{name: "2147483648"}))


@pytest.mark.parametrize("name", [*TEXTS, *NUMBERS])
def test_what_the_flags_ask_for_must_be_there(name: str) -> None:
    given = ext(sysFlag=str(PULL_COMMIT_OFFSET | PULL_SUSPEND))
    del given[name]
    with pytest.raises(RequestRejected, match=f"the header field {name} is missing"):
        pull_header(given)


def test_what_they_do_not_ask_for_may_be_anything() -> None:
    odd = dict.fromkeys(("commitOffset", "suspendTimeoutMillis", "subVersion"), "x")
    found = pull_header(ext(sysFlag=str(PULL_SUBSCRIPTION), **odd))
    assert (found.commit_offset, found.suspend_ms, found.sub_version) == (0, 0, 0)
