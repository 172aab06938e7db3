"""Recall handles. Spec: timer.md, section 6.1."""

from base64 import urlsafe_b64encode

import pytest

from rmq_ha.base.wire.recall_handle import RecallHandle

JAVAS = "djEgVFQgYnJva2VyLXQgMTc5NTg4MzM4MTAwMSA3RjAwMDAwMTAwMDA1MDM2MDAwMUEyMjJGRDlDRTcwMQ=="
OF_JAVA = RecallHandle("TT", "broker-t", "1795883381001", "7F000001000050360001A222FD9CE701")


def test_a_java_brokers_handle_is_read_and_written() -> None:
    assert RecallHandle.parse(JAVAS) == RecallHandle.parse(JAVAS.rstrip("=")) == OF_JAVA
    assert OF_JAVA.encode() == JAVAS


def test_the_sixth_item_names_the_waiting_record() -> None:
    handle = OF_JAVA._replace(source="104857-7")
    assert RecallHandle.parse(handle.encode()) == handle
    more = urlsafe_b64encode(b"v1 T b 1 K 5-6 further items").decode()
    assert RecallHandle.parse(more) == RecallHandle("T", "b", "1", "K", "5-6")


@pytest.mark.parametrize(
    "text",
    ["", "***", "djI", urlsafe_b64encode(b"v2 T b 1 K").decode(), "djEgVFQgYiAx", "d", "ü"],
)
def test_what_is_no_handle(text: str) -> None:
    """No Base64, another version, and four items only."""
    assert RecallHandle.parse(text) is None


@pytest.mark.parametrize("item", ["topic", "broker_name", "unique_key"])
def test_items_with_blanks_have_no_handle(item: str) -> None:
    """Blanks divide items, so such a handle would name another message."""
    assert OF_JAVA._replace(**{item: "two words"}).encode() == ""
    assert OF_JAVA._replace(**{item: ""}).encode() == ""
