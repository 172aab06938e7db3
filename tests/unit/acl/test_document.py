"""Values of a document, at their edges, and where a fault is said to be."""

import pytest
import yaml

from rmq_ha.acl.addresses import _v6_parts
from rmq_ha.acl.document import Document
from rmq_ha.errors import ConfigurationError


def node(text: str) -> yaml.Node:
    found = yaml.compose(text)
    assert found is not None
    return found


@pytest.mark.parametrize("number", [0, 7, (1 << 63) - 1])
def test_a_number_has_at_most_63_bits(number: int) -> None:
    document = Document("f", b"{}")
    assert document.number(node(str(number)), "counter") == number
    for wrong in (1 << 63, (1 << 63) + 1, "-1", "x"):
        with pytest.raises(ConfigurationError, match="must be a number"):
            document.number(node(f"'{wrong}'"), "counter")


def test_a_fault_names_its_line() -> None:
    document = Document("f", b"{}")
    second = yaml.compose("- a\n- b").value[1]
    assert str(document.fault(second, "name", "is wrong")) == "f:2: name: is wrong"
    assert str(document.fault(None, "", "is empty")) == "f:1: is empty"


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
