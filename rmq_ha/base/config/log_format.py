"""How a server's log lines look."""

from enum import Enum


class LogFormat(Enum):
    """Names as the properties file has them."""

    text = "text"
    json = "json"
