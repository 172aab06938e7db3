"""From which level on a server logs."""

from enum import Enum


class LogThreshold(Enum):
    """Names as the properties file has them; docs/reference/logs.md says what each is for."""

    debug = "debug"
    info = "info"
    warn = "warn"
    error = "error"
    critical = "critical"
