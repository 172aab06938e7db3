"""`host:port` is read and written by one pair of functions."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmq_ha
from rmq_ha.base.model.host_port import HostPort, host_of, parse_host_port

PACKAGE = Path(rmq_ha.__file__).parent
NAMES = st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True)
HOSTS = st.one_of(NAMES, st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str))
NO_ADDRESSES = {
    "rmq_ha/base/acl/addresses.py": "the parts of an IPv6 address",
    "rmq_ha/base/config/key_readers.py": "the key in a notice",
    "rmq_ha/base/host/admission.py": "the parts of an IPv6 address",
    "rmq_ha/base/model/host_port.py": "the one place",
    "rmq_ha/client/rules/routes.py": "a broker and its number of queues",
    "rmq_ha/lake/scan/arrays.py": "a column and its type",
    "rmq_ha/lake/spark/host/masters.py": "a master of Spark, whose port may be left out",
    "rmq_ha/lake/spark/source/schema.py": "a column and its type",
    "rmq_ha/lake/spark/source/tables_rows.py": "a column and its type",
    "rmq_ha/ops/admin/doctor/probe.py": "a header of HTTP",
    "rmq_ha/ops/admin/doctor/selection.py": "the code of a rule and a subject",
    "rmq_ha/ops/admin/groups.py": "a module and its attribute",
    "rmq_ha/ops/admin/message_lookup.py": "a broker, a queue and an offset",
    "rmq_ha/ops/admin/tail.py": "a broker and a queue",
    "rmq_ha/server/acl/policies.py": "the kind of a resource and its name",
}
"""Files that cut a text at a colon, and which text that is."""


@given(HOSTS, st.integers(1, 65535))
def test_what_is_written_can_be_read(host: str, port: int) -> None:
    address = HostPort(host, port)
    assert parse_host_port(str(address)) == address
    assert host_of(str(address)) == host


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_refused_with_the_form(text: str) -> None:
    try:
        address = parse_host_port(text)
    except ValueError as error:
        refusal = str(error)
    else:
        assert parse_host_port(str(address)) == address
        return
    assert refusal.endswith("such as 10.0.0.5:9876 or [fd00::5]:9876")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.5:9876", ("10.0.0.5", 9876)),
        (" name-server.example:1 ", ("name-server.example", 1)),
        ("[fd00::5]:9876", ("fd00::5", 9876)),
        ("fd00::5:9876", ("fd00::5", 9876)),
        ("[fe80::1%eth0]:65535", ("fe80::1%eth0", 65535)),
    ],
)
def test_forms_that_are_read(text: str, address: tuple[str, int]) -> None:
    assert parse_host_port(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        ":9876",
        "host:",
        "host:0",
        "host:65536",
        "host:-1",
        "host:９",
        "host:+1",
        "a b:1",
        "a:b:1",
        "http://host:1",
        "host:1/",
        "a,b:1",
        "[host]:1",
        "[fd00::5:1",
        "fd00::5]:1",
        "[[fd00::5]]:1",
        "[]:1",
        "host:99999999999999999999",
    ],
)
def test_forms_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:port; write a name or an address"):
        parse_host_port(text)


def test_a_port_may_be_left_out_where_one_is_known() -> None:
    assert parse_host_port("host", 9876) == ("host", 9876)
    assert parse_host_port("[fd00::5]", 9876) == ("fd00::5", 9876)
    assert parse_host_port("host:1", 9876) == ("host", 1)


def test_a_long_text_is_cut_in_the_message() -> None:
    with pytest.raises(ValueError, match="is not host:port") as caught:
        parse_host_port("x" * 10_000)
    assert len(str(caught.value)) < 300


def test_nobody_cuts_an_address_by_hand() -> None:
    cutters = ("partition", "rpartition", "split", "rsplit")
    found = {
        str(path.relative_to(PACKAGE.parent))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in cutters
        and [part.value for part in node.args[:1] if isinstance(part, ast.Constant)] == [":"]
    }
    assert found == NO_ADDRESSES.keys()
