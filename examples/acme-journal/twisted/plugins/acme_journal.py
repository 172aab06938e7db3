"""A journal on two disks of one machine: `journalPlugIn=two-disks`, `two-disks.directory=/other`.

SEND_OK says that both have the message. The copy is a commit log that a broker can start with.
"""

from twisted.internet.defer import Deferred, gatherResults
from zope.interface import implementer

from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.errors import ConfigurationError
from rmq_ha.interfaces import IJournalPlugin
from rmq_ha.server.store.journal_base import combine
from rmq_ha.server.store.local.journal import LocalJournal
from rmq_ha.server.store.log.layout import make_commit_log


class TwoDisksJournal(LocalJournal):
    def attach(self, store):
        super().attach(store)
        self._waiting, self._copied, self._is_copying = [], 0, False
        files = self._store.host.disk.list_dir(self.directory)
        self._copied = int(files[-1]) if files else 0  # the last file is copied anew
        self.once_a_turn.append(self._copy)

    def when_kept(self, start_offset, next_offset, since, decided):
        self._waiting.append((next_offset, other := Deferred()))
        own, clock = Deferred(), self._store.host.clock
        known = super().when_kept(
            start_offset, next_offset, since, lambda *told: own.callback(told[0])
        )
        if known is not None:
            own.callback(known)
        both = gatherResults([own, other])
        both.addCallback(lambda found: decided(combine(*found), clock.seconds()))

    def is_kept(self, start_offset, next_offset):
        return next_offset <= self._copied

    def _copy(self):
        self._copied = max(self._copied, self.log.min_offset)
        data = b"" if self._is_copying else self.log.read(self._copied, 1 << 20)
        if data:
            self._is_copying = True
            self._store.host.worker.call(self._write, data).addBoth(self._written, len(data))

    def _write(self, data):
        place = self._copied % self.log.file_size
        path = f"{self.directory}/{self._copied - place:020d}"
        file = self._store.host.disk.open(path, self.log.file_size)
        file.pwrite(data, place)
        file.sync()
        file.close()

    def _written(self, failure, size):
        self._is_copying, status = False, PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        if failure is None:
            self._copied, status = self._copied + size, PutMessageStatus.PUT_OK
            self._copy()
        done = [put for put in self._waiting if failure or put[0] <= self._copied]
        self._waiting = self._waiting[len(done) :]
        for _, other in done:
            other.callback(status)


@implementer(IJournalPlugin)
class TwoDisks:
    name = "two-disks"

    def make_journal(self, broker):
        config = broker.configuration.store
        journal = TwoDisksJournal(make_commit_log(broker.host.disk, config), config)
        journal.directory = broker.option("two-disks.directory")
        if not journal.directory:
            raise ConfigurationError("two-disks.directory is missing: a folder on the other disk")
        return journal


two_disks = TwoDisks()
