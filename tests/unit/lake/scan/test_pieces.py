"""Properties of many records: each way to cut them, and to know names again, says the same."""

from collections.abc import Sequence

import numpy as np
import pytest

from rmq_ha.base.model.properties import decode_properties
from rmq_ha.lake.scan.log.pieces import Pieces, maps_of, pieces_of, text_values, values_of

SEVERAL = "INNER_MULTI_DISPATCH"
JUNK = b"\x02TAGS\x01z\x02\x01\x02q\x01"
ROOM = [pytest.param(JUNK * 20, id="side by side"), pytest.param(b"", id="joined")]
"""Behind all strings: with room for the longest one behind each they are looked at in a table."""


def cut(strings: Sequence[str | bytes], behind: bytes) -> Pieces:
    """Strings with foreign bytes around them, cuts among these."""
    data, begins, ends = JUNK, [], []
    for each in strings:
        part = each.encode() if isinstance(each, str) else each
        begins.append(len(data))
        ends.append(len(data) + len(part))
        data += part + (JUNK if behind else b"\x07")
    data = data + behind if behind else data[:-1]
    return pieces_of(data, np.array(begins, np.int64), np.array(ends, np.int64))


def maps(strings: Sequence[str | bytes], behind: bytes) -> list[dict[str, str]]:
    rows = maps_of(cut(strings, behind)).to_pylist()
    for row in rows:
        assert len({name for name, _ in row}) == len(row)
    return [dict(row) for row in rows]


@pytest.mark.parametrize("behind", ROOM)
@pytest.mark.parametrize(
    "strings",
    [
        ["a\x01b", "", "c\x01de\x02f\x01g\x02", "h\x01i"],
        ["", "\x02", "\x02\x02a\x01b"],
        ["\x01v", "a\x01", "a", "a\x01b\x01c", "\x01"],  # no name, no value
        ["d\x02a\x01b\x01c", "a\x01b\x01c\x02d"],  # as many ends of names as pieces
        ["a\x01b", "x" * 30 + "\x01" + "y" * 40],
        [""],
        [],
    ],
)
def test_strings_are_cut_as_a_client_does_it(strings: list[str], behind: bytes) -> None:
    assert maps(strings, behind) == [decode_properties(each) for each in strings]


@pytest.mark.parametrize("behind", ROOM)
def test_pieces_know_their_string_and_where_they_lie(behind: bytes) -> None:
    found = cut(["ab\x02c", "", "\x02defghijklm"], behind)
    texts = [
        found.data[at:end].tobytes()
        for at, end in zip(found.starts.tolist(), found.stops.tolist(), strict=True)
    ]
    assert texts == [b"ab", b"c", b"", b"", b"defghijklm"]
    assert found.rows.tolist() == [0, 0, 1, 2, 2]
    assert found.lengths.tolist() == [4, 0, 11]
    assert [
        found.data[at : at + size].tobytes()
        for at, size in zip(found.strings.tolist(), found.lengths.tolist(), strict=True)
    ] == [b"ab\x02c", b"", b"\x02defghijklm"]
    assert found.heads[4].tobytes() == b"defghijk"


@pytest.mark.parametrize("behind", ROOM)
@pytest.mark.parametrize(
    ("name", "string", "value"),
    [
        ("TAGS", "TAGS\x01a", "a"),
        ("TAGS", "TAGS\x01", None),
        ("TAGS", "TAGS\x01ab\x02TAGS\x01", "ab"),
        ("TAGS", "TAGS\x01ab\x02TAGS\x01c", "c"),
        ("TAGS", "xTAGS\x01a\x02TAGSx\x01b\x02TAG\x01c\x02TAGX\x01d", None),
        ("UNIQ_KEY", "UNIQ_KEY\x01k", "k"),
        ("UNIQ_KEY", "UNIQ_KEY2\x01k\x02UNIQ_KEX\x01l\x02UNIQ_KE\x01m\x02UNIQ_KEY", None),
        (SEVERAL, f"a\x01b\x02{SEVERAL}\x01A,B", "A,B"),
        (SEVERAL, "INNER_MUXTI_DISPATCH\x01v\x02INNER_MULTI_DISPATCX\x01w", None),
        (SEVERAL, "INNER_MU\x01v\x02INNER_MU\x02INNER_MULTI_DISPATCH2\x01w\x02INNER_MU", None),
        (SEVERAL, "INNER_MULTI_DISPATCH", None),
    ],
)
def test_a_value_is_found_by_its_whole_name(
    name: str, string: str, value: str | None, behind: bytes
) -> None:
    found = cut(["other\x01x", string, ""], behind)
    assert text_values(found, name.encode()).to_pylist() == [None, value, None]
    starts, lengths = values_of(found, name.encode())
    assert lengths.tolist() == [0, len(value or ""), 0]
    assert (starts[0], starts[2]) == (0, 0)
    here = int(starts[1])
    assert found.data[here : here + len(value or "")].tobytes() == (value or "").encode()


LONG = "the-same-start-"


@pytest.mark.parametrize("behind", ROOM)
@pytest.mark.parametrize(
    "names",
    [
        ["a", "a"],
        ["a", "b", "a"],
        ["a", "b", "c", "a", "b", "a"],
        [f"{LONG}1", f"{LONG}2", f"{LONG}1", f"{LONG}12"],
        [f"{LONG}1", f"{LONG}2"],
        ["a", "b\0", "a\0", "b"],
        [*(f"n{at}" for at in range(31)), "n0"],  # as many as are held against each other
        [*(f"n{at}" for at in range(32)), "n0"],
        [*(f"n{at % 20}" for at in range(75))],  # four times each, at most
        [*(f"{LONG}{at % 9}" for at in range(40))],
    ],
)
def test_of_several_values_of_a_name_the_last_one_counts(names: list[str], behind: bytes) -> None:
    """And the same name in another record is another one."""
    string = "\x02".join(f"{name}\x01{at}" for at, name in enumerate(names))
    strings = ["x\x01y", string, string[:-1] + "z", "a\x011\x02n0\x012"]
    assert maps(strings, behind) == [decode_properties(each) for each in strings]


@pytest.mark.parametrize("behind", ROOM)
def test_names_that_are_no_text_are_read_as_on_the_wire(behind: bytes) -> None:
    """Two of them may become one."""
    strings = [b"k\x01v", b"a\xff\x011\x02a\xfe\x012\x02b\x01c", b"", b"k\x01\xffv"]
    assert maps(strings, behind) == [
        {"k": "v"},
        {"a\ufffd": "2", "b": "c"},
        {},
        {"k": "\ufffdv"},
    ]


def test_strings_of_very_different_lengths_are_joined() -> None:
    strings = ["k\x01" + "v" * 9000, *["a\x01b"] * 30]
    assert maps(strings, JUNK * 2000) == [decode_properties(each) for each in strings]
