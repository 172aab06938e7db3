"""The classes of RocketMQ's gRPC messages, such as `messages.SendMessageRequest`.

They live in a descriptor pool of their own. The official Python SDK puts messages of the same names
into protobuf's common pool, and a program may have that SDK and a broker in one process.
"""

from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
)

from rmq_ha.server.grpc.wire.table import ENUMS, MESSAGES, PACKAGE

_KIND = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": _KIND.TYPE_BOOL,
    "bytes": _KIND.TYPE_BYTES,
    "float": _KIND.TYPE_FLOAT,
    "int32": _KIND.TYPE_INT32,
    "int64": _KIND.TYPE_INT64,
    "string": _KIND.TYPE_STRING,
}
_COMMON = {"Duration": duration_pb2, "Timestamp": timestamp_pb2}


def _add_map(message: Any, name: str) -> str:
    """Add the entry type of a map of strings to a message, and return its name."""
    entry = "".join(word.capitalize() for word in name.split("_")) + "Entry"
    nested = message.nested_type.add(name=entry)
    nested.options.map_entry = True
    for number, side in ((1, "key"), (2, "value")):
        nested.field.add(
            name=side, number=number, type=_KIND.TYPE_STRING, label=_KIND.LABEL_OPTIONAL
        )
    return entry


def _set_type(message: Any, field: Any, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    elif kind == "map":
        entry = _add_map(message, field.name)
        field.type, field.label = _KIND.TYPE_MESSAGE, _KIND.LABEL_REPEATED
        field.type_name = f".{PACKAGE}.{message.name}.{entry}"
    elif kind in ENUMS:
        field.type, field.type_name = _KIND.TYPE_ENUM, f".{PACKAGE}.{kind}"
    else:
        package = "google.protobuf" if kind in _COMMON else PACKAGE
        field.type, field.type_name = _KIND.TYPE_MESSAGE, f".{package}.{kind}"


def _add_message(file: Any, name: str, rows: tuple[str, ...]) -> None:
    message = file.message_type.add(name=name)
    groups: dict[str, int] = {}
    optional = []
    for row in rows:
        number, field_name, kind, *rest = row.split()
        field = message.field.add(name=field_name, number=int(number), label=_KIND.LABEL_OPTIONAL)
        _set_type(message, field, kind)
        match rest:
            case ["repeated"]:
                field.label = _KIND.LABEL_REPEATED
            case ["optional"]:
                optional.append(field)
            case ["in", group]:
                field.oneof_index = groups.setdefault(group, len(groups))
    for group in groups:
        message.oneof_decl.add(name=group)
    for field in optional:  # their groups of one come behind all others
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="rmq_ha/grpc.proto",
        package=PACKAGE,
        syntax="proto3",
        dependency=[module.DESCRIPTOR.name for module in _COMMON.values()],
    )
    for name, members in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for member in members:
            enum.value.add(name=member.name, number=member.value)
    for name, rows in MESSAGES.items():
        _add_message(file, name, rows)
    return file


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    for module in _COMMON.values():
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(_file().SerializeToString())
    names = {name: f"{PACKAGE}.{name}" for name in MESSAGES}
    names |= {name: f"google.protobuf.{name}" for name in _COMMON}
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(full))
        for name, full in names.items()
    }


_CLASSES = _classes()


def __getattr__(name: str) -> Any:
    """Return a class by the name of its message, such as `Timestamp` or `Message`."""
    try:
        return _CLASSES[name]
    except KeyError:
        raise AttributeError(f"the service has no message {name}") from None
