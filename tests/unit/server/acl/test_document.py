"""Values of a document, at their edges, and where a fault is said to be."""

import pytest
import yaml

from rmq_ha.base.acl.addresses import _v6_parts
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.server.acl import document
from rmq_ha.server.acl.document import Document


def node(text: str) -> yaml.Node:
    found = yaml.compose(text)
    assert found is not None
    return found


@pytest.mark.parametrize("number", [0, 7, (1 << 63) - 1])
def test_a_number_has_at_most_63_bits(number: int) -> None:
    it = Document("f", b"{}")
    assert it.number(node(str(number)), "counter") == number
    for wrong in (1 << 63, (1 << 63) + 1, "-1", "x"):
        with pytest.raises(ConfigurationError, match="must be a number"):
            it.number(node(f"'{wrong}'"), "counter")


def test_a_fault_names_its_line() -> None:
    it = Document("f", b"{}")
    second = yaml.compose("- a\n- b").value[1]
    assert str(it.fault(second, "name", "is wrong")) == "f:2: name: is wrong"
    assert str(it.fault(None, "", "is empty")) == "f:1: is empty"


def test_a_number_that_is_not_there_is_0() -> None:
    assert Document("f", b"{}").number(None, "counter") == 0


def test_nesting_is_bounded_and_many_beside_each_other_are_not() -> None:
    """The composer recurses in C: too deep would end the process."""
    for depth, is_good in ((20, True), (21, False)):
        text = b"a: " + b"[" * (depth - 1) + b"]" * (depth - 1)
        if is_good:
            Document("f", text)
        else:
            with pytest.raises(ConfigurationError, match="f:1: nests deeper than 20"):
                Document("f", text)
    Document("f", b"a:\n" + b"- {b: [c]}\n" * 30)


def test_a_file_may_be_as_large_as_that_and_no_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "_MAX_BYTES", 4)
    Document("f", b"a: 1")
    with pytest.raises(ConfigurationError, match="f: is larger than 4 bytes"):
        Document("f", b"a: 12")


def test_what_is_not_utf_8_is_in_its_line() -> None:
    for data, line in ((b"\xff", 1), (b"\n\xff", 2), (b"a: 1\nb: \xff\n\n", 2)):
        with pytest.raises(ConfigurationError, match=f"f:{line}: is not UTF-8"):
            Document("f", data)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("1:2:3:4:5:6:7::", ["1", "2", "3", "4", "5", "6", "7", "0"]),
        ("::", ["0"] * 8),
        ("1::8", ["1", *["0"] * 6, "8"]),
        ("1:2:3:4:5:6:7:8", list("12345678")),
    ],
)
def test_two_colons_are_as_many_zeros_as_are_missing(text: str, parts: list[str]) -> None:
    assert _v6_parts(text) == parts


@pytest.mark.parametrize("text", ["1:2:3:4:5:6:7:8::", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9"])
def test_an_address_has_eight_parts(text: str) -> None:
    with pytest.raises(ValueError, match="eight parts"):
        _v6_parts(text)
