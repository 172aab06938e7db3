"""The forms of a server's log lines."""

from enum import Enum


class LogFormat(Enum):
    """The values of the key `logFormat`: the forms of a log line."""

    text = "text"
    json = "json"
