"""The forms of a server's log lines."""

from enum import Enum


class LogFormat(Enum):
    """The values of logFormat."""

    text = "text"
    json = "json"
