"""Bodies that are more than bytes."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.message import Address
from rmq_ha.client.rules import serializers
from rmq_ha.client.rules.errors import IllegalMessage
from rmq_ha.client.rules.messages import MessageExt, UndecodableBody
from rmq_ha.client.rules.serializers import (
    AvroSerializer,
    BytesSerializer,
    JsonSerializer,
    ProtobufSerializer,
    RegisteredSerializer,
    Serializer,
    TextSerializer,
)

HOST = Address(bytes(4), 1)
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "number", "type": "string"}, {"name": "price", "type": "int"}],
}
NEWER = {
    **SCHEMA,
    "fields": [*SCHEMA["fields"], {"name": "currency", "type": "string", "default": "EUR"}],
}


@dataclass
class Order:
    number: str
    price: int
    placed: datetime


def got(body: bytes) -> MessageExt:
    return MessageExt("T", body, {}, "b", 0, 0, "ID1", "", 0, 0, HOST, 0, HOST, 0)


def there_and_back(serializer: Serializer[Any], value: Any) -> Any:
    message = serializer.message("T", value, "tag", keys="k")
    assert (message.topic, message.tags, message.keys) == ("T", "tag", "k")
    return serializer.value(got(message.body))


def test_bytes_text_and_json() -> None:
    order = Order("4711", 3, datetime(2026, 1, 2, tzinfo=UTC))
    assert there_and_back(JsonSerializer(Order), order) == order
    assert there_and_back(JsonSerializer(dict), {"a": [1, None]}) == {"a": [1, None]}
    assert there_and_back(JsonSerializer(object), [1]) == [1]
    assert there_and_back(TextSerializer(), "größer") == "größer"
    assert TextSerializer("latin-1").message("T", "ö").body == b"\xf6"
    assert there_and_back(BytesSerializer(), bytearray(b"x")) == b"x"


def test_avro_of_this_schema_and_of_an_older_one() -> None:
    pytest.importorskip("fastavro", reason="pip install 'rmq-ha[avro]'")
    order = {"number": "4711", "price": 3}
    assert there_and_back(AvroSerializer(SCHEMA), order) == order
    old = AvroSerializer(SCHEMA).dumps(order)
    assert AvroSerializer(NEWER, writer=SCHEMA).loads(old) == {**order, "currency": "EUR"}
    with pytest.raises(UndecodableBody, match="1 bytes behind the record"):
        AvroSerializer(SCHEMA).value(got(old + b"x"))
    with pytest.raises(ConfigurationError, match="no Avro schema"):
        AvroSerializer({"type": "recorder"})


def test_protobuf() -> None:
    made = pytest.importorskip(
        "google.protobuf.wrappers_pb2", reason="pip install 'rmq-ha[protobuf]'"
    )
    serializer = ProtobufSerializer(made.StringValue)
    assert there_and_back(serializer, made.StringValue(value="4711")).value == "4711"
    with pytest.raises(IllegalMessage, match="a StringValue is wanted"):
        serializer.message("T", made.Int32Value(value=3))
    with pytest.raises(UndecodableBody, match="cannot read the body of ID1 of T"):
        serializer.value(got(b"\xff\xff"))


@pytest.mark.parametrize(
    ("serializer", "value", "body"),
    [
        (JsonSerializer(Order), object(), b'{"number":"4711","price":"3"}'),
        (JsonSerializer(dict), {"a": object()}, b"{"),
        (TextSerializer(), 17, b"\xff"),
        (TextSerializer("ascii"), "ö", b"\xff"),
    ],
)
def test_what_is_of_another_kind_is_an_error_that_names_it(
    serializer: Serializer[Any], value: Any, body: bytes
) -> None:
    with pytest.raises(IllegalMessage, match=f"{type(serializer).__name__} cannot make a body of"):
        serializer.message("T", value)
    with pytest.raises(UndecodableBody, match="cannot read the body of ID1 of T"):
        serializer.value(got(body))


def test_a_number_is_no_bytes() -> None:
    """`bytes(3)` would be three zeros."""
    with pytest.raises(IllegalMessage, match="a body of a int: these are no bytes"):
        BytesSerializer().message("T", 3)  # type: ignore[arg-type]


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_module(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(serializers, "import_module", no_module)
    with pytest.raises(ConfigurationError, match=r"rmq-ha\[avro\]"):
        AvroSerializer(SCHEMA)


def test_a_schema_of_a_registry_is_named_in_each_body() -> None:
    """The bytes are those of confluent-kafka 2.16.1; what is newer can be read."""
    schemas = {1: SCHEMA, 2: NEWER}
    asked: list[int] = []

    def reader(number: int) -> AvroSerializer:
        asked.append(number)
        return AvroSerializer(SCHEMA, writer=schemas[number])

    old = RegisteredSerializer(1, AvroSerializer(SCHEMA), reader)
    new = RegisteredSerializer(2, AvroSerializer(NEWER), reader)
    order = {"number": "4711", "price": 3}
    assert old.dumps(order) == b"\x00\x00\x00\x00\x01\x084711\x06"
    assert there_and_back(old, order) == order
    for _ in range(2):
        newer = new.message("T", {**order, "currency": "CHF"})
        assert old.value(got(newer.body)) == order
    assert asked == [2]
    for body in (b"", b"\x00\x00\x00\x01", b"{}{}{}", b"\x00\x00\x00\x00\x03x"):
        with pytest.raises(UndecodableBody, match="cannot read the body of ID1 of T"):
            old.value(got(body))
    with pytest.raises(ConfigurationError, match="schemas have numbers"):
        RegisteredSerializer(-1, AvroSerializer(SCHEMA), reader)
