"""The levels from which on a server logs."""

from enum import Enum


class LogThreshold(Enum):
    """The values of logLevel; docs/reference/logs.md says what each is for."""

    debug = "debug"
    info = "info"
    warn = "warn"
    error = "error"
    critical = "critical"
