"""Serializers: message bodies as values of text, JSON, Avro or protobuf.

    ORDERS = JsonSerializer(Order)
    await producer.send(ORDERS.message("Orders", order, keys=order.number))
    ...
    order = ORDERS.value(message)

A serializer knows one kind of values, and type checkers know which.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib import import_module
from io import BytesIO
from typing import Any, Generic, Protocol, Self, TypeVar

import msgspec

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.client.rules.compression import UndecodableBody
from rmq_ha.client.rules.errors import IllegalMessage
from rmq_ha.client.rules.messages import Message, MessageExt

T = TypeVar("T")
_MAGIC = b"\0"
_NUMBERED = 1 + 4
_MOST_SCHEMAS = 1024


class Serializer(ABC, Generic[T]):
    """Converts values to bytes and back. Subclasses implement `dumps` and `loads`."""

    @abstractmethod
    def dumps(self, value: T) -> bytes:
        """
        Return a value as bytes.

        :raises Exception: the value is not of the serializer's kind.
        """

    @abstractmethod
    def loads(self, data: bytes) -> T:
        """
        Return the value of bytes.

        :raises Exception: the bytes are no value of the serializer's kind.
        """

    def message(self, topic: str, value: T, tags: str = "", **more: Any) -> Message:
        """
        Make a message with this value as its body.

        :param more: further arguments of `Message`.
        :raises IllegalMessage: the value cannot be serialized.
        """
        try:
            body = self.dumps(value)
        except Exception as error:
            raise IllegalMessage(
                f"{type(self).__name__} cannot make a body of a {type(value).__name__}: {error}"
            ) from error
        return Message(topic, body, tags, **more)

    def value(self, message: MessageExt) -> T:
        """
        Return the value in a message's body.

        :raises UndecodableBody: the body is no value of the serializer's kind.
        """
        try:
            return self.loads(message.body)
        except Exception as error:
            raise UndecodableBody(
                f"{type(self).__name__} cannot read the body of {message.msg_id} of"
                f" {message.topic}: {error}"
            ) from error


class BytesSerializer(Serializer[bytes]):
    """Bytes unchanged, also from a bytearray or a memoryview."""

    def dumps(self, value: bytes | bytearray | memoryview) -> bytes:
        """:raises TypeError: the value is no buffer; `bytes` would make zeros of a number."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError("these are no bytes")
        return bytes(value)

    def loads(self, data: bytes) -> bytes:
        """Return the data itself; any bytes are a value."""
        return data


class TextSerializer(Serializer[str]):
    """Text, in UTF-8 or another encoding."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def dumps(self, value: str) -> bytes:
        """:raises ValueError: the encoding lacks a character."""
        return value.encode(self.encoding)

    def loads(self, data: bytes) -> str:
        """:raises ValueError: the bytes are no text in this encoding."""
        return data.decode(self.encoding)


class JsonSerializer(Serializer[T]):
    """
    JSON of dataclasses, attrs, TypedDicts, structs of msgspec, datetimes and JSON's own types.

    Bodies that are read are checked: a field that is missing or has another type is an error.
    """

    def __init__(self, kind: type[T]) -> None:
        """:param kind: the type of the values; `dict` for any object, `object` for any JSON."""
        self.kind = kind
        self._encode = msgspec.json.Encoder().encode
        decoder: Any = msgspec.json.Decoder(Any if kind is object else kind)
        self._decode: Callable[[bytes], T] = decoder.decode

    def dumps(self, value: T) -> bytes:
        """:raises TypeError: JSON has no form for a part of the value."""
        return self._encode(value)

    def loads(self, data: bytes) -> T:
        """:raises msgspec.MsgspecError: the bytes are no JSON, or not of this kind."""
        return self._decode(data)


class AvroSerializer(Serializer[Mapping[str, Any]]):
    """
    Avro records without a header, so a reader has to know the schema. It needs `rmq-ha[avro]`.

    :ivar schema: the parsed schema that values are written with.
    """

    def __init__(self, schema: Mapping[str, Any], writer: Mapping[str, Any] | None = None) -> None:
        """
        :param writer: the schema that the read bodies were written with, if it is not `schema`.
        :raises ConfigurationError: fastavro is not installed, or a schema is not valid.
        """
        try:
            self._avro: Any = import_module("fastavro")
        except ImportError:
            raise ConfigurationError(
                "AvroSerializer needs fastavro: pip install 'rmq-ha[avro]'"
            ) from None
        try:
            self.schema = self._avro.parse_schema(dict(schema))
            self._writer = self._avro.parse_schema(dict(writer)) if writer else self.schema
        except Exception as error:
            raise ConfigurationError(f"this is no Avro schema: {error}") from error

    def dumps(self, value: Mapping[str, Any]) -> bytes:
        """:raises ValueError: the value does not fit the schema."""
        out = BytesIO()
        self._avro.schemaless_writer(out, self.schema, value)
        return out.getvalue()

    def loads(self, data: bytes) -> Mapping[str, Any]:
        """
        Return the record in a body.

        :raises EOFError: the bytes are cut short.
        :raises ValueError: further bytes follow the record.
        """
        stream = BytesIO(data)
        record: Mapping[str, Any] = self._avro.schemaless_reader(stream, self._writer, self.schema)
        left = len(data) - stream.tell()
        if left:
            raise ValueError(f"{left} bytes behind the record: another schema?")
        return record


class RegisteredSerializer(Serializer[T]):
    """
    Bodies that name their schema in a registry: a zero byte, the schema's number in four bytes, and
    the serialized value.

    Confluent's serializers for Avro and JSON write this form.
    """

    def __init__(
        self, number: int, own: Serializer[T], reader: Callable[[int], Serializer[T]]
    ) -> None:
        """
        :param number: the registry's number of the schema that values are written with.
        :param own: serializes values with this schema.
        :param reader: returns the serializer for bodies of a schema's number; called once for each
            number.
        :raises ConfigurationError: the number does not fit into four bytes.
        """
        if not 0 <= number < 1 << 32:
            raise ConfigurationError(f"{number}: schemas have numbers from 0 to {(1 << 32) - 1}")
        self.number = number
        self._own = own
        self._reader = reader
        self._readers: dict[int, Serializer[T]] = {number: own}

    def dumps(self, value: T) -> bytes:
        """:raises Exception: as raised by the serializer `own`."""
        return _MAGIC + self.number.to_bytes(4, "big") + self._own.dumps(value)

    def loads(self, data: bytes) -> T:
        """
        :raises ValueError: the bytes do not begin with a zero and a schema's number.
        :raises Exception: as raised by `reader` or by its serializer.
        """
        if len(data) < _NUMBERED or data[:1] != _MAGIC:
            raise ValueError("it does not begin with a zero and the number of a schema")
        number = int.from_bytes(data[1:_NUMBERED], "big")
        reader = self._readers.get(number)
        if reader is None:
            reader = self._reader(number)
            if len(self._readers) < _MOST_SCHEMAS:
                self._readers[number] = reader
        return reader.loads(data[_NUMBERED:])


class ProtobufMessage(Protocol):
    """A message class that `protoc` has generated."""

    def SerializeToString(self) -> bytes:
        """Return the message as bytes."""

    @classmethod
    def FromString(cls, s: bytes, /) -> Self:
        """Return the message of bytes."""


P = TypeVar("P", bound=ProtobufMessage)


class ProtobufSerializer(Serializer[P]):
    """Protobuf messages of a class that `protoc` has generated. It needs `rmq-ha[protobuf]`."""

    def __init__(self, kind: type[P]) -> None:
        self.kind = kind

    def dumps(self, value: P) -> bytes:
        """:raises TypeError: the value is of another class; readers would misread its bytes."""
        if not isinstance(value, self.kind):
            raise TypeError(f"a {self.kind.__name__} is wanted")
        return value.SerializeToString()

    def loads(self, data: bytes) -> P:
        """:raises google.protobuf.message.DecodeError: the bytes are no such message."""
        return self.kind.FromString(data)
