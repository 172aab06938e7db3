"""Writes the outcomes of pops as remoting's clients read them.

Spec: pop.md, sections 2.1 to 2.4.
"""

from collections.abc import Sequence

from rmq_ha.base.errors import CorruptRecord
from rmq_ha.base.model.pop_topics import TopicKind, kind_of
from rmq_ha.base.store_format.popped_record import with_receipt
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_headers import PopAnswerHeader, PopHeader
from rmq_ha.base.wire.pop_places import (
    PoppedOffsets,
    msg_offset_info,
    order_count_info,
    start_offset_info,
)
from rmq_ha.base.wire.pop_receipt import ORDERLY_QUEUE
from rmq_ha.server.door import PopOutcome
from rmq_ha.server.pop.face import PopAnswer, PopPart

REFUSED = PopAnswerHeader().ext()


class PopAnswers:
    """
    Makes responses of pops.

    :param broker_name: this broker's name, for receipts.
    """

    def __init__(self, broker_name: str) -> None:
        self._broker_name = broker_name

    def response(
        self, outcome: PopOutcome, request: RemotingCommand, header: PopHeader, now_ms: int
    ) -> RemotingCommand:
        """Return the response to a pop."""
        if outcome.answer is not None:
            return self._full(outcome.answer, request, header)
        if outcome.code == ResponseCode.SYSTEM_BUSY:
            return request.response(outcome.code, outcome.remark, REFUSED)
        empty = PopAnswerHeader(
            now_ms,
            header.invisible_time,
            ORDERLY_QUEUE if header.order else 0,
            start_offset_info="",
            msg_offset_info="",
            order_count_info="" if header.order else None,
        )
        return request.response(outcome.code, outcome.remark, empty.ext())

    def _full(
        self, answer: PopAnswer, request: RemotingCommand, header: PopHeader
    ) -> RemotingCommand:
        queues: list[PoppedOffsets] = []
        body: list[bytes] = []
        for part in answer.parts:
            kind = TopicKind.NORMAL if part.topic == header.topic else kind_of(part.topic)
            counts = [part.counts.get(offset, 0) for offset in part.offsets]
            queues.append(PoppedOffsets(kind, part.queue_id, part.start, part.offsets, counts))
            is_normal = kind is TopicKind.NORMAL
            body += part.records if is_normal else self._retries(answer, part, kind, header)
        ext = PopAnswerHeader(
            answer.pop_ms,
            answer.invisible_ms,
            answer.revive_queue,
            answer.rest,
            start_offset_info(queues),
            msg_offset_info(queues),
            order_count_info(queues) if header.order else None,
        ).ext()
        return request.response(ResponseCode.SUCCESS, "FOUND", ext, b"".join(body))

    def _retries(
        self, answer: PopAnswer, part: PopPart, kind: TopicKind, header: PopHeader
    ) -> Sequence[bytes]:
        """
        Return the records of a retry topic as a client reads them: with the topic that it asked
        for, and with the receipt of each.
        """
        topic = header.topic.encode()
        first = answer.receipt_of(part, kind, self._broker_name)
        rewritten = []
        for offset, record in zip(part.offsets, part.records, strict=True):
            receipt = first._replace(offset=offset).encode().encode()
            try:
                rewritten.append(with_receipt(record, topic, receipt))
            except CorruptRecord:
                rewritten.append(record)
        return rewritten
