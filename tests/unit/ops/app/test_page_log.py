"""Which lines of the log are among the events of the page."""

from typing import Any

import pytest
from twisted.logger import Logger, LogLevel, LogPublisher

from rmq_ha.ops.app.page.events import EventKind, EventSeverity
from rmq_ha.ops.app.page.port import LogTap

NOTED = list[tuple[Any, ...]]


def told(namespace: str, level: LogLevel, text: str = "x {y}", **fields: Any) -> NOTED:
    found: NOTED = []
    publisher = LogPublisher(LogTap(lambda *args: found.append(args)))
    Logger(namespace=namespace, observer=publisher).emit(level, text, **fields)
    return found


@pytest.mark.parametrize(
    ("namespace", "level", "expected"),
    [
        ("rmq_ha.audit", LogLevel.info, (EventKind.CHANGE, EventSeverity.INFO)),
        (
            "rmq_ha.server.acl.service.PlainAccessControl",
            LogLevel.warn,
            (EventKind.REFUSAL, EventSeverity.WARN),
        ),
        (
            "rmq_ha.server.replication.classic.service.HAService",
            LogLevel.error,
            (EventKind.REPLICATION, EventSeverity.ERROR),
        ),
        ("rmq_ha.server.broker.registration.Registration", LogLevel.warn,
         (EventKind.REGISTRATION, EventSeverity.WARN)),
        ("rmq_ha.server.store.log.clean", LogLevel.critical, (EventKind.LOG, EventSeverity.ERROR)),
    ],
)  # fmt: skip
def test_warnings_and_the_audit_log(
    namespace: str, level: LogLevel, expected: tuple[EventKind, EventSeverity]
) -> None:
    assert told(namespace, level, y=1) == [(*expected, "x 1")]


def test_the_rest_is_the_logs_alone() -> None:
    assert told("rmq_ha.server.replication.classic.service.HAService", LogLevel.info, y=1) == []
    assert told("rmq_ha.audit", LogLevel.debug, y=1) == []


def test_a_line_that_cannot_be_formatted_is_one_all_the_same() -> None:
    (line,) = told("rmq_ha.server.store", LogLevel.warn)
    assert "Unable to format" in line[2]
