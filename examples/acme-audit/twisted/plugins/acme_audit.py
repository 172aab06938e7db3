"""Counts messages per topic, and logs the counts every `audit.every` messages.

A broker with `dispatcherPlugIn=audit` in its properties file uses it. This file lies in
`twisted/plugins/`, which has no `__init__.py`; more code would go into a package beside `twisted/`.
"""

from collections import Counter

from twisted.logger import Logger
from zope.interface import implementer

from rmq_ha.errors import ConfigurationError
from rmq_ha.interfaces import ICommitLogDispatcher, IDispatcherPlugin


@implementer(ICommitLogDispatcher)
class CountingDispatcher:
    log = Logger()

    def __init__(self, every):
        self.counts = Counter()
        self._every = every
        self._next = every

    def dispatch(self, requests):
        """Called once a batch, on the send path: no log line, no file, no wait per message."""
        self.counts.update([request.topic for request in requests])
        if self.counts.total() >= self._next:
            self._next = self.counts.total() + self._every
            self.log.info("messages per topic: {counts}", counts=dict(self.counts))


@implementer(IDispatcherPlugin)
class Audit:
    name = "audit"

    def make_dispatcher(self, broker):
        every = broker.option("audit.every", "1000")
        if not every.isdecimal() or int(every) < 1:
            raise ConfigurationError(f"audit.every={every}: must be a number above 0")
        return CountingDispatcher(int(every))


audit = Audit()
