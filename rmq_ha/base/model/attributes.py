"""Attributes of topics, as tools of RocketMQ 5 set them: `+message.type=FIFO`.

Spec: grpc.md, sections 8 and 16; pop.md, section 7.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

MESSAGE_TYPE = "message.type"
MESSAGE_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "UNSPECIFIED")
"""The values of the attribute `message.type`."""
NORMAL, FIFO, DELAY, TRANSACTION, MIXED, UNSPECIFIED = MESSAGE_TYPES
_MOST_TEXT = 1024


class AttributeChange(NamedTuple):
    """
    One change of an attribute.

    :ivar value: None removes the attribute.
    """

    name: str
    value: str | None


def parse_changes(text: str) -> list[AttributeChange]:
    """
    Read changes as a request has them: `+name=value` sets, `-name` removes, a comma separates.

    :raises ValueError: the text has another form; the error says so in a sentence.
    """
    if len(text) > _MOST_TEXT:
        raise ValueError(f"the attributes take {len(text)} characters; {_MOST_TEXT} are the most")
    changes: list[AttributeChange] = []
    for item in filter(None, text.split(",")):
        name, has_value, value = item[1:].partition("=")
        if not name or (item[0] == "+") != bool(has_value and value) or item[0] not in "+-":
            raise ValueError(f"the attribute {item!r} has not the form +name=value or -name")
        if any(name == change.name for change in changes):
            raise ValueError(f"the attribute {name} is named twice")
        changes.append(AttributeChange(name, value if item[0] == "+" else None))
    return changes


def format_changes(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return the text of the changes that make `after` of `before`."""
    items = [f"+{name}={value}" for name, value in after.items() if before.get(name) != value]
    return ",".join(items + [f"-{name}" for name in before if name not in after])


def with_changes(before: Mapping[str, str], changes: Iterable[AttributeChange]) -> dict[str, str]:
    """
    Return the attributes of a topic after some changes.

    :raises ValueError: a value is not served, or a removed attribute is not there.
    """
    after = dict(before)
    for name, value in changes:
        if value is None:
            if after.pop(name, None) is None:
                raise ValueError(f"the topic has no attribute {name} that could be removed")
            continue
        fault = _fault_of(name, value)
        if fault is not None and before.get(name) != value:
            raise ValueError(fault)
        after[name] = value
    return after


def message_type(attributes: Mapping[str, str], default: str) -> str:
    """
    Return the type of messages that a topic takes.

    :param default: the type of a topic that does not say it.
    """
    return attributes.get(MESSAGE_TYPE, default)


def _fault_of(name: str, value: str) -> str | None:
    rule = _RULES.get(name)
    if rule is None:
        return f"the attribute {name} is not served; {', '.join(_RULES)} are"
    if rule.allows(value):
        return None
    return f"the attribute {name} is {value!r}; {rule.words}"


class _AttributeRule(NamedTuple):
    allows: Callable[[str], bool]
    words: str


_RULES: dict[str, _AttributeRule] = {
    MESSAGE_TYPE: _AttributeRule(
        lambda value: value in MESSAGE_TYPES, f"choose one of {', '.join(MESSAGE_TYPES)}"
    ),
    # What a topic is without the attribute. Java's other values change how messages are kept.
    "queue.type": _AttributeRule(lambda value: value == "SimpleCQ", "only SimpleCQ is served"),
    "cleanup.policy": _AttributeRule(lambda value: value == "DELETE", "only DELETE is served"),
    "reserve.time": _AttributeRule(
        lambda value: value == "-1",
        "only -1 is served: the key fileReservedTime holds for all topics",
    ),
}
