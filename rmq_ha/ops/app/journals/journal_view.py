"""
Chooses how a broker's journal is shown to operators; no other module asks for the kind of a
journal.
"""

from typing import Any, Protocol

from rmq_ha.ops.app.journals.classic import PairView
from rmq_ha.ops.app.journals.controller_mode import SetView
from rmq_ha.ops.app.journals.dledger import GroupView
from rmq_ha.ops.app.page.values import MemberRow
from rmq_ha.ops.app.status.health import Health
from rmq_ha.ops.app.status.samples import Samples
from rmq_ha.server.dledger.statistics import DLedgerStatistics
from rmq_ha.server.replication.statistics import SetStatistics


class JournalView(Protocol):
    """A broker's journal, as its metrics, /healthz and the page show it."""

    def collect(self, samples: Samples) -> None: ...

    def health(self, name: str) -> Health:
        """
        Return whether clients can be served, as far as the journal and its store can say.

        :param name: role and name of the broker, for the text.
        """

    def mode(self) -> str:
        """Return the kind of replication in words: `pair`, `controller mode, epoch 4`, ..."""

    def members(self, why_no_puts: str) -> list[MemberRow]:
        """
        Return this broker first, then the other members.

        :param why_no_puts: why it takes no messages; empty: it takes messages.
        """


def journal_view(broker: Any) -> JournalView:
    """
    Return the view that shows how a broker's journal replicates.

    The statistics of the journal tell its kind. The journal of a plugin is shown like a pair.

    :param broker: a `Broker`, started or not.
    """
    statistics = broker.journal.statistics()
    if isinstance(statistics, DLedgerStatistics):
        return GroupView(broker)
    return SetView(broker) if isinstance(statistics, SetStatistics) else PairView(broker)
