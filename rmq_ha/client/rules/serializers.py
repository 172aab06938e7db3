"""Bodies that are more than bytes: text, JSON, Avro, protobuf.

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
    """Makes bytes of values, and values of bytes; make one of your own by these two methods."""

    @abstractmethod
    def dumps(self, value: T) -> bytes:
        """:raises Exception: it is no value of this kind."""

    @abstractmethod
    def loads(self, data: bytes) -> T:
        """:raises Exception: they are no value of this kind."""

    def message(self, topic: str, value: T, tags: str = "", **more: Any) -> Message:
        """
        A message with this value.

        :param more: as `Message`.
        :raises IllegalMessage: the value cannot be said so.
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
        What a message is about.

        :raises UndecodableBody: its body is of another kind.
        """
        try:
            return self.loads(message.body)
        except Exception as error:
            raise UndecodableBody(
                f"{type(self).__name__} cannot read the body of {message.msg_id} of"
                f" {message.topic}: {error}"
            ) from error


class BytesSerializer(Serializer[bytes]):
    """Bytes as they are, and what can be seen as bytes."""

    def dumps(self, value: bytes | bytearray | memoryview) -> bytes:
        """:raises TypeError: it is something else; a number would become so many zeros."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError("these are no bytes")
        return bytes(value)

    def loads(self, data: bytes) -> bytes:
        """The same."""
        return data


class TextSerializer(Serializer[str]):
    """Text, in UTF-8 or another encoding."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def dumps(self, value: str) -> bytes:
        """:raises ValueError: the encoding lacks a character."""
        return value.encode(self.encoding)

    def loads(self, data: bytes) -> str:
        """:raises ValueError: they are no text in this encoding."""
        return data.decode(self.encoding)


class JsonSerializer(Serializer[T]):
    """
    JSON of dataclasses, attrs, TypedDicts, structs of msgspec, datetimes, and what JSON knows.

    What is read is checked: a field that is missing or of another type is an error.
    """

    def __init__(self, kind: type[T]) -> None:
        """:param kind: of the values; `dict` or `object` for any."""
        self.kind = kind
        self._encode = msgspec.json.Encoder().encode
        decoder: Any = msgspec.json.Decoder(Any if kind is object else kind)
        self._decode: Callable[[bytes], T] = decoder.decode

    def dumps(self, value: T) -> bytes:
        """:raises TypeError: something in it is unknown to JSON."""
        return self._encode(value)

    def loads(self, data: bytes) -> T:
        """:raises msgspec.MsgspecError: they are no JSON, or of another kind."""
        return self._decode(data)


class AvroSerializer(Serializer[Mapping[str, Any]]):
    """
    Avro records without a header: who reads has to know the schema (`rmq-ha[avro]`).

    :ivar schema: what is written, as a dict.
    """

    def __init__(self, schema: Mapping[str, Any], writer: Mapping[str, Any] | None = None) -> None:
        """
        :param writer: what was written with, when what is read is older or newer.
        :raises ConfigurationError: fastavro is not installed, or the schema is none.
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
        """:raises ValueError: it does not fit the schema."""
        out = BytesIO()
        self._avro.schemaless_writer(out, self.schema, value)
        return out.getvalue()

    def loads(self, data: bytes) -> Mapping[str, Any]:
        """:raises EOFError: they are cut short."""
        stream = BytesIO(data)
        record: Mapping[str, Any] = self._avro.schemaless_reader(stream, self._writer, self.schema)
        left = len(data) - stream.tell()
        if left:
            raise ValueError(f"{left} bytes behind the record: another schema?")
        return record


class RegisteredSerializer(Serializer[T]):
    """
    Bodies that name their schema of a registry: a zero, its number in four bytes, the rest.

    So Confluent's serializers for Avro and JSON write them, and registries that do as it does.
    """

    def __init__(
        self, number: int, own: Serializer[T], reader: Callable[[int], Serializer[T]]
    ) -> None:
        """
        :param number: the schema's at the registry, for what is written.
        :param own: writes it.
        :param reader: a schema's number to what reads bodies of it; called once for each.
        :raises ConfigurationError: the number is none of a registry's.
        """
        if not 0 <= number < 1 << 32:
            raise ConfigurationError(f"{number}: schemas have numbers from 0 to {(1 << 32) - 1}")
        self.number = number
        self._own = own
        self._reader = reader
        self._readers: dict[int, Serializer[T]] = {number: own}

    def dumps(self, value: T) -> bytes:
        """:raises Exception: what its own serializer raises."""
        return _MAGIC + self.number.to_bytes(4, "big") + self._own.dumps(value)

    def loads(self, data: bytes) -> T:
        """:raises ValueError: no number is there; else what `reader` or its serializer raises."""
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
    """What `protoc` makes."""

    def SerializeToString(self) -> bytes:
        """Its bytes."""

    @classmethod
    def FromString(cls, s: bytes, /) -> Self:
        """The reverse."""


P = TypeVar("P", bound=ProtobufMessage)


class ProtobufSerializer(Serializer[P]):
    """Protobuf, by the class that `protoc` made (`rmq-ha[protobuf]`)."""

    def __init__(self, kind: type[P]) -> None:
        self.kind = kind

    def dumps(self, value: P) -> bytes:
        """:raises TypeError: it is of another class, whose bytes would be read as something."""
        if not isinstance(value, self.kind):
            raise TypeError(f"a {self.kind.__name__} is wanted")
        return value.SerializeToString()

    def loads(self, data: bytes) -> P:
        """:raises google.protobuf.message.DecodeError: they are none."""
        return self.kind.FromString(data)
