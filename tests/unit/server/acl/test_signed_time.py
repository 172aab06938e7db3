"""The signature between ours, and the memory that keeps requests from being taken twice."""

import sys
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.acl.refusals import RefusalReason
from rmq_ha.base.acl.signature import Signer, SigningContent
from rmq_ha.base.acl.signed_time import (
    SIGNED_TIME,
    Stamp,
    TimedContent,
    read_signed_time,
    stamp_text,
)
from rmq_ha.base.errors import AccessRefused
from rmq_ha.base.remoting.signing import Credentials, RequestSigner, SignedTimes
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame
from rmq_ha.server.acl.freshness import Freshness
from rmq_ha.server.acl.reading import read_file
from rmq_ha.server.acl.rules import Rules

NOW = 1_700_000_000_000
ADMIN = Credentials("adminadmin", "adminsecret")
FILE = b"accounts: [{accessKey: adminadmin, secretKey: adminsecret, admin: true}]"


class Now:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.ms = NOW

    def __call__(self) -> int:
        return self.ms


def signer(now: Now, seed: int = 1) -> RequestSigner:
    return RequestSigner(ADMIN, SignedTimes(now, Random(seed)))


def rules(freshness: Freshness | None, *, strict: bool = True) -> Rules:
    return Rules([read_file("f", FILE)], strict=strict, freshness=freshness)


def refused(made: Rules, request: RemotingCommand) -> str:
    """Of which kind the refusal is; empty: it passes."""
    try:
        made.check(request, "10.0.0.1")
    except AccessRefused as refusal:
        return refusal.kind
    return ""


def stamp(session: int, number: int, time_ms: int = NOW) -> Stamp:
    read = read_signed_time(stamp_text(time_ms, session, number) + "." + "A" * 43 + "=")
    assert read is not None
    return read[0]


exts = st.dictionaries(
    st.text("abc1:,\n\0", max_size=3), st.text("ab1,\n\0", max_size=4), max_size=4
)


def test_a_single_field_is_one_value() -> None:
    made = TimedContent().bytes_of(310, "s", {"topic": "Secret"})
    assert made == b"rmq-ha request\n310\ns\n5:topic\n\nSecret\0"


@given(exts, exts)
def test_no_two_header_maps_are_signed_alike(one: dict[str, str], other: dict[str, str]) -> None:
    content = TimedContent()
    same = content.bytes_of(310, "s", one) == content.bytes_of(310, "s", other)
    assert same == (one == other)
    assert content.bytes_of(310, "s", dict(reversed(one.items()))) == content.bytes_of(
        310, "s", one
    )
    assert content.bytes_of(310, "s", one) != content.bytes_of(215, "s", one)


words = st.text(min_size=1, max_size=8)


bodies = st.text("ab1,\n\0", max_size=4).map(str.encode)


@given(exts, bodies, exts, bodies)
def test_no_value_reaches_into_the_body(
    one: dict[str, str], its: bytes, other: dict[str, str], others: bytes
) -> None:
    content = TimedContent()
    same = content.bytes_of(1, "s", one) + its == content.bytes_of(1, "s", other) + others
    assert same == ((one, its) == (other, others))


def test_no_way_to_write_values_and_body_is_like_another() -> None:
    content = TimedContent()
    cuts = [("a\0", "b"), ("a", "\0b"), ("a", "b"), ("", "a\0b"), ("a\0b", ""), ("ab", "")]
    signed = {
        content.bytes_of(1, "s", dict(zip("xy", cut, strict=True))) + body
        for cut in cuts
        for body in (b"", b"b", b"\0", b"\0b", b"b\0")
    }
    assert len(signed) == 30


@given(st.dictionaries(words, words, max_size=5), st.booleans())
def test_what_a_client_signs_is_right_at_the_other_end(ext: dict[str, str], binary: bool) -> None:
    """Also what cannot be encoded: `?` has one character, as what it stands for."""
    now = Now()
    request = signer(now).sign(RemotingCommand(28, ext, b"body", binary=binary), "a:1")
    (frame,) = FrameReader().receive_data(encode_frame(request))
    assert refused(rules(Freshness(now)), decode_frame(*frame)) == ""


def changed(request: RemotingCommand, change: dict[str, str], body: bytes) -> RemotingCommand:
    """A request with other fields and body, signed again as 4.9 does, and only so."""
    ext = {**(request.ext or {}), **change}
    del ext["Signature"]
    ext["Signature"] = Signer(ADMIN.secret_key).sign(SigningContent().bytes_of(ext), body)
    return RemotingCommand(request.code, ext, body)


@pytest.mark.parametrize("strict", [True, False])
def test_each_change_of_a_request_shows(strict: bool) -> None:
    now = Now()
    made = rules(Freshness(now), strict=strict)
    client = signer(now)

    def asked() -> RemotingCommand:
        return client.sign(RemotingCommand(202, {"topic": "ab", "z": "cT"}, b"x"), "a:1")

    assert refused(made, changed(asked(), {}, b"x")) == ""
    other = asked()
    other.code = 215
    assert refused(made, other) == RefusalReason.SIGNATURE
    assert refused(made, changed(asked(), {}, b"y")) == RefusalReason.SIGNATURE
    for change in ({"topic": "abc", "z": "T"}, {"new": ""}, {SIGNED_TIME: "nonsense"}):
        assert refused(made, changed(asked(), change, b"x")) == RefusalReason.SIGNATURE, change


def test_a_request_is_taken_once_and_in_its_time() -> None:
    now = Now()
    made = rules(Freshness(now, is_required=True, window_s=300))
    now.ms += 1
    client = signer(now)
    first, second = (client.sign(RemotingCommand(28), "a:1") for _ in range(2))
    assert refused(made, second) == ""
    assert refused(made, first) == "", "they may overtake each other"
    assert refused(made, first) == RefusalReason.REPLAY
    assert refused(made, second) == RefusalReason.REPLAY
    late = client.sign(RemotingCommand(28), "a:1")
    now.ms += 300_001
    assert refused(made, late) == RefusalReason.TIME
    assert refused(made, first) == RefusalReason.TIME
    early = client.sign(RemotingCommand(28), "a:1")
    now.ms -= 300_001
    assert refused(made, early) == RefusalReason.TIME
    now.ms += 1
    assert refused(made, early) == ""


def test_a_clock_that_is_wrong_stops_nobody_where_nothing_is_required() -> None:
    """Who could leave the time out need not have it right; what surely came before is refused."""
    now, told = Now(), []
    made = rules(Freshness(now, on_odd=lambda *odd: told.append(odd)))
    client = signer(now)
    late = client.sign(RemotingCommand(28), "a:1")
    now.ms += 3_600_000
    assert refused(made, late) == ""
    ((account, reason),) = told
    assert account == "adminadmin"
    assert "3600 s before this server's clock" in reason
    good = client.sign(RemotingCommand(28), "a:1")
    assert [refused(made, good) for _ in range(2)] == ["", RefusalReason.REPLAY]
    assert len(told) == 1


def test_a_refusal_names_key_and_next_step() -> None:
    now = Now()
    made = rules(Freshness(now, is_required=True, window_s=60))
    with pytest.raises(AccessRefused, match=r"aclRequiresSignedTime=true: use a client of rmq-ha"):
        made.check(RequestSigner(ADMIN).sign(RemotingCommand(28)), "10.0.0.1")
    request = signer(now).sign(RemotingCommand(28))
    now.ms += 61_000
    with pytest.raises(
        AccessRefused, match=r"61 s before .* aclSignedTimeWindow=60: set the clocks"
    ):
        made.check(request, "10.0.0.1")


def test_only_who_must_signs_the_time() -> None:
    now = Now()
    plain = RequestSigner(ADMIN).sign(RemotingCommand(28))
    assert refused(rules(Freshness(now)), plain) == ""
    assert refused(rules(Freshness(now, is_required=True)), plain) == RefusalReason.NOT_TIMED
    now.ms += 1
    assert refused(rules(None), signer(now).sign(RemotingCommand(28))) == ""


def test_a_start_forgets_and_knows_it() -> None:
    """Where signed times are required, nothing from before this start can come again after it."""
    now = Now()
    recorded = signer(now).sign(RemotingCommand(28))
    now.ms += 1000
    assert refused(rules(Freshness(now, is_required=True)), recorded) == RefusalReason.TIME
    assert refused(rules(Freshness(now)), recorded) == ""
    now.ms += 1
    made = rules(Freshness(now, is_required=True))
    now.ms += 1
    assert refused(made, signer(now).sign(RemotingCommand(28))) == ""


@given(st.lists(st.integers(0, 3000), max_size=60))
def test_no_number_is_taken_twice(numbers: list[int]) -> None:
    fresh = Freshness(Now())
    taken = [number for number in numbers if fresh.take("a", stamp(1, number)) is None]
    assert len(set(taken)) == len(taken)
    highest = -1
    for number in numbers:
        if number > highest:
            assert number in taken
            highest = number


def test_what_fell_out_of_the_numbers_that_are_kept_stays_out() -> None:
    fresh = Freshness(Now())
    for number in (5, 5 + 1023):
        assert fresh.take("a", stamp(1, number)) is None
    assert fresh.take("a", stamp(1, 6)) is None
    assert fresh.take("a", stamp(1, 5 + 1024)) is None
    for number in (5, 4, 6):
        assert fresh.take("a", stamp(1, number)) is not None


def test_hostile_names_of_fields_fill_no_memory() -> None:
    content = TimedContent()
    for number in range(1000):
        content.bytes_of(1, "s", {str(number): "v"})
    assert content._order.cache_info().currsize == 256
    assert content.bytes_of(1, "s", {"0": "v"}) == TimedContent().bytes_of(1, "s", {"0": "v"})


def test_sessions_are_bounded_and_what_was_forgotten_stays_out() -> None:
    now = Now()
    fresh = Freshness(now, is_required=True, most_sessions=100)
    for number in range(1000):
        now.ms += 1
        assert fresh.take("a", stamp(number, 1, now.ms)) is None
    assert fresh.take("b", stamp(1, 1, NOW + 1)) is None, "accounts are on their own"
    assert len(fresh) == 101
    for number in range(900):
        stale = fresh.take("a", stamp(number, 1, NOW + number + 1))
        assert stale is not None
    again = fresh.take("a", stamp(950, 1, NOW + 951))
    assert again is not None
    assert again.kind is RefusalReason.REPLAY
    assert fresh.take("a", stamp(950, 2, NOW)) is None, "who is known may be late"


def test_old_sessions_go_by_themselves() -> None:
    now = Now()
    fresh = Freshness(now, window_s=10)
    for number in range(500):
        now.ms += 100
        assert fresh.take("a", stamp(number, 1, now.ms)) is None
    assert len(fresh) <= 102


def test_a_clock_that_was_set_forward_and_back_opens_nothing() -> None:
    now = Now()
    fresh = Freshness(now, is_required=True, window_s=10)
    now.ms += 1
    assert fresh.take("a", stamp(1, 1, NOW + 1)) is None
    now.ms += 3_600_000
    assert fresh.take("a", stamp(2, 1, now.ms)) is None  # the first session is forgotten
    now.ms = NOW + 2
    assert fresh.take("a", stamp(1, 1, NOW + 1)) is not None
    assert fresh.take("a", stamp(3, 1, NOW + 2)) is None


def test_a_session_that_runs_for_ever_stays_small() -> None:
    fresh = Freshness(Now())
    for number in range(0, 100_000, 7):
        assert fresh.take("a", stamp(1, number)) is None
    session = fresh._accounts["a"].sessions[stamp(1, 1).session]
    assert sys.getsizeof(session._seen) < 200


def test_sessions_are_apart_by_address_and_client() -> None:
    now = Now()
    times = SignedTimes(now, Random(3))
    texts = [times.next(address) for address in ("a:1", "a:1", "b:1", "a:1")]
    sessions, numbers = zip(*[text.split(".")[1:] for text in texts], strict=True)
    assert numbers == ("1", "2", "1", "3")
    assert len(set(sessions)) == 2
    assert SignedTimes(now, Random(4)).next("a:1").split(".")[1] not in sessions
