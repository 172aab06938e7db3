"""What twistd logs to standard output, without one line that only worries.

On a read-only installation Twisted says at every start, and at every search for plugins, that it
cannot write its plugin cache. It works without one.
"""

import sys
from typing import Any

from twisted.logger import (
    FilteringLogObserver,
    ILogFilterPredicate,
    ILogObserver,
    LogEvent,
    PredicateResult,
    textFileLogObserver,
)
from zope.interface import provider

_CACHE_MESSAGE = "Unable to write to plugin cache "


@provider(ILogFilterPredicate)
def no_cache_message(event: LogEvent) -> Any:
    """Lets every event pass but that one, known by its format."""
    is_it = str(event.get("format", "")).startswith(_CACHE_MESSAGE)
    return PredicateResult.no if is_it else PredicateResult.maybe


def quiet_observer(twistd_options: Any) -> ILogObserver | None:
    """
    twistd's own observer for standard output, behind the filter.

    :param twistd_options: the parent of our options; None outside twistd.
    :returns: None where the command line chose another log: a file, syslog, an observer.
    """
    options = twistd_options or {}
    chosen = (options.get(name) for name in ("logger", "syslog"))
    if any(chosen) or not options.get("nodaemon") or options.get("logfile") not in (None, "", "-"):
        return None
    return FilteringLogObserver(textFileLogObserver(sys.stdout), [no_cache_message])
