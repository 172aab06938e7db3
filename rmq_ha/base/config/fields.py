"""How a configuration dataclass names its RocketMQ key and meaning."""

from dataclasses import Field, field, fields
from typing import Any


def key(name: str, default: Any, meaning: str, *, secret: bool = False) -> Any:
    """
    Declare one configuration value.

    :param name: the key in the properties file, RocketMQ's spelling.
    :param default: RocketMQ's default; None where it is computed at start.
    :param meaning: one line for `--check` and the documentation.
    :param secret: the value is never shown.
    """
    return field(
        default=default,
        repr=not secret,
        metadata={"key": name, "meaning": meaning, "secret": secret},
    )


def fields_by_key(config_class: type) -> dict[str, Field[Any]]:
    """The fields of a configuration dataclass by their RocketMQ key."""
    return {item.metadata["key"]: item for item in fields(config_class)}
