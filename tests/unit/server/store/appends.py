"""Messages into a log without a store around it."""

from collections.abc import Sequence

from rmq_ha.base.model.message import AppendResult, BrokerMessage, draft_of
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.server.store.log.journal_log import JournalLog
from rmq_ha.server.store.settle import results_of


def append_group(
    log: JournalLog, messages: Sequence[BrokerMessage], now_ms: int
) -> list[AppendResult | PutMessageStatus]:
    """Append them together; one result for each."""
    group = log.append_group([draft_of(message) for message in messages], now_ms)
    records = iter(group.rows)
    rows = [None if place in group.faults else next(records) for place in range(group.count)]
    results = results_of(messages, PutMessageStatus.PUT_OK, rows, group.faults)
    return [result.append or result.status for result in results]
