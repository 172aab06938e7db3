"""Patterns of peer addresses."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.acl import addresses
from rmq_ha.base.acl.addresses import AddressPatterns

JAVA = json.loads((Path(__file__).parent / "data" / "java_addresses.json").read_text())


def patterns(*texts: str) -> AddressPatterns:
    made = AddressPatterns()
    for text in texts:
        made.add(text)
    return made


@pytest.mark.parametrize("text", JAVA["matches"])
def test_matches_what_java_matches(text: str) -> None:
    made = patterns(text)
    assert [host for host in JAVA["hosts"] if made.matches(host)] == JAVA["matches"][text]


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("127.*.0.1", "127.9.0.1", "127.9.0.2"),  # Java lets both in
        ("10.0.1-20.1", "10.0.7.1", "10.0.7.2"),  # as well
        ("10.0.0.1-3,10.0.0.{7,9}, 10.1.*.*", "10.0.0.9", "10.0.0.8"),
        ("10.0.{0,1}.1", "10.0.1.1", "10.0.2.1"),
        ("1050::5:*:*:1-ff", "1050:0:0:0:5:1:2:fe", "1050:0:0:0:5:1:2:100"),
        ("10.0.0.1", "::ffff:10.0.0.1", "::ffff:10.0.0.2"),
        ("fe80::1", "fe80::1%eth0", "fe80::2"),
    ],
)
def test_each_part_stands_for_itself(text: str, yes: str, no: str) -> None:
    made = patterns(text)
    assert made.matches(yes)
    assert not made.matches(no)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nonsense", "four parts"),
        ("10.0.0", "four parts"),
        ("10.0.0.256", "'256' in it is no number up to 255"),
        ("10.0.0.01", "'01' in it"),
        ("10.0.0.9-1", "ends before it starts"),
        ("10.0.0.1-2-3", "'2-3' in it"),
        ("10.0.0.{}", "'' in it"),
        ("10.0.0.{12", "'{12' in it"),
        ("10.0.0.12}", "'12}' in it"),
        ("10.0.0.{1,x}", "'x' in it"),
        ("10.0.0.0/8", "'0/8' in it"),
        ("[::1]", "'[' in it"),
        ("1:2:3:*", "eight parts"),
        ("1:2:3:4:5:6:7:8::*", "eight parts"),
        ("fe80::12345-2", "'12345' in it is no number up to ffff"),
        ("10.0.0.1,oops", "'oops'"),
    ],
)
def test_what_is_no_pattern_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match="is no") as caught:
        patterns(text)
    assert reason in str(caught.value)


def test_nothing_lets_nobody_in() -> None:
    for text in ("", " ", ",", None):
        made = AddressPatterns()
        made.add(text)
        assert not made
        assert not made.matches("127.0.0.1")


def test_patterns_are_bounded_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is tried for each new address."""
    monkeypatch.setattr(addresses, "_MAX_PATTERNS", 3)
    made = patterns("10.0.*.*", "10.1.*.*,10.2.*.*")
    assert made.matches("10.2.0.1")
    with pytest.raises(ValueError, match="more than 3 patterns"):
        made.add("10.3.*.*")


@given(st.text("0123456789abcdef.:*{},-% ", max_size=40) | st.text(max_size=40))
def test_any_text_is_a_pattern_or_a_value_error(text: str) -> None:
    try:
        made = patterns(text)
    except ValueError:
        return
    assert made.matches("127.0.0.1") in (True, False)


@given(st.tuples(*[st.integers(0, 255)] * 4), st.data())
def test_a_pattern_made_around_an_address_matches_it(parts: tuple[int, ...], data: st.DataObject):
    def around(value: int) -> str:
        return data.draw(
            st.sampled_from(
                [str(value), "*", f"{max(0, value - 3)}-{min(255, value + 3)}", f"{{0,{value}}}"]
            )
        )

    text = ".".join(map(around, parts))
    assert patterns(text).matches(".".join(map(str, parts)))
