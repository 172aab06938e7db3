"""Which processor answers which request code.

Spec: remoting.md, section 2.1.
"""

from collections.abc import Iterable
from typing import Protocol

from rmq_ha.broker.processors.fields import Handler
from rmq_ha.errors import ConfigurationError
from rmq_ha.remoting.audit import AuditLog
from rmq_ha.remoting.dispatcher import RequestDispatcher
from rmq_ha.wire.codes import RequestCode


class Processor(Protocol):
    """A group of request handlers."""

    def routes(self) -> dict[int, Handler]:
        """Request code to handler."""


def add_routes(
    main: RequestDispatcher,
    fast: RequestDispatcher,
    processors: Iterable[Processor],
    audit: AuditLog,
) -> None:
    """
    Give both ports their functions; the fast ("VIP") port serves everything but pulls.

    :param audit: hears of what changes something for all.
    :raises ConfigurationError: two processors want the same code.
    """
    for processor in processors:
        for code, handler in processor.routes().items():
            if code in main.routes:
                raise ConfigurationError(
                    f"{type(processor).__name__} wants request code {code}, which is taken"
                )
            main.routes[code] = audit.around(code, handler)
            if code != RequestCode.PULL_MESSAGE:
                fast.routes[code] = main.routes[code]
