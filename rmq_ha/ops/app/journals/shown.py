"""Which kind of journal a broker has, as operators see it: the one place that asks."""

from typing import Any, Protocol

from rmq_ha.base.config.journal import CONTROLLER, DLEDGER, journal_name
from rmq_ha.ops.app.journals.classic import PairShown
from rmq_ha.ops.app.journals.controlled import SetShown
from rmq_ha.ops.app.journals.dledger import GroupShown
from rmq_ha.ops.app.page.values import Member
from rmq_ha.ops.app.status.health import Health
from rmq_ha.ops.app.status.samples import Samples


class JournalShown(Protocol):
    """A broker's journal, as its metrics, /healthz and the page show it."""

    def tell(self, samples: Samples) -> None: ...

    def health(self, name: str) -> Health:
        """
        Whether clients can be served, as far as the journal and its store can say.

        :param name: role and name of the broker, for the line.
        """

    def mode(self) -> str:
        """In words: `pair`, `controller mode, epoch 4`, ..."""

    def members(self, why_no_puts: str) -> list[Member]:
        """
        This broker first, then the others.

        :param why_no_puts: empty: it takes messages.
        """


_KINDS: dict[str, type[GroupShown | SetShown]] = {DLEDGER: GroupShown, CONTROLLER: SetShown}


def journal_shown(broker: Any) -> JournalShown:
    """
    As its kind is shown; a journal of somebody else's as the classic one, as far as it tells.

    :param broker: a `Broker`, started or not.
    """
    return _KINDS.get(journal_name(broker.configuration), PairShown)(broker)
