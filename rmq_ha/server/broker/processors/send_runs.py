"""Runs of ordinary sends: decoded directly from their bytes, appended and answered together.

A message with anything unusual leaves the run and goes the general way, in order.

Spec: remoting.md, chapter 4; store.md, section 2.7.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.model.message import Draft, offset_msg_id
from rmq_ha.base.model.properties import (
    CLUSTER,
    DELAY,
    KEYS,
    MAX_PROPERTIES_SIZE,
    SENT_BY,
    TAGS,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
)
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.model.unserved_properties import UNSERVED
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire.command import FLAG_ONEWAY, RemotingCommand
from rmq_ha.base.wire.frame import Frame
from rmq_ha.base.wire.send_header import (
    UNDECODABLE,
    decode_fast_v1,
    decode_fast_v2,
    encode_send_responses,
)
from rmq_ha.server.broker.duplicates import DuplicateWindow, sender_of
from rmq_ha.server.broker.overload import SendOverload
from rmq_ha.server.broker.processors.many_keys import has_many_keys
from rmq_ha.server.broker.processors.send_answers import CODES, SendAnswers
from rmq_ha.server.broker.processors.send_ticket import SendTickets
from rmq_ha.server.broker.stats import BrokerStats
from rmq_ha.server.store.message_store import DefaultMessageStore
from rmq_ha.server.store.settle import Done, Others

# A message with one of these leaves the run, as it is stored elsewhere, differently, or not at all.
_ODD = frozenset({DELAY, TRAN_MSG, WAIT, CLUSTER, SENT_BY, *UNSERVED})
_LONG = MAX_PROPERTIES_SIZE // 4 - 512
"""Most characters of properties that surely fit together with CLUSTER and SENT_BY, even at the most
bytes in UTF-8."""
_WAIT_TRUE = f"\x02{WAIT}\x01true"

GeneralWay = Callable[[Channel, bytes, bytes], None]
Bulk = Callable[[Channel, list[Frame]], None]


class SendRuns:
    """
    Handles the hot path of a master.

    :param now_ms: ms since the epoch.
    :param tickets: the answers of the broker's policies.
    :param window: recognizes repeated messages, which leave the run; None: nothing is compared.
    """

    def __init__(
        self,
        configuration: BrokerConfiguration,
        store: DefaultMessageStore,
        stats: BrokerStats,
        overload: SendOverload,
        now_ms: Callable[[], int],
        tickets: SendTickets,
        window: DuplicateWindow | None = None,
    ) -> None:
        self._window = window
        self._tickets = tickets
        self._broker = configuration.broker
        self._store = store
        self._stats = stats
        self._answers = SendAnswers(configuration, store)
        self._overload = overload
        self._store_host = configuration.store_host
        self._id_prefix = offset_msg_id(self._store_host, 0)[:-16]
        self._now_ms = now_ms

    def handlers(self, general: GeneralWay) -> dict[bytes, Bulk]:
        """
        Return handlers of runs by the start of their frames' headers.

        :param general: handles one frame the general way, in order with the run.
        """
        return {
            b'{"code":310,': partial(self.send_run, decode_fast_v2, general),
            b'{"code":10,': partial(self.send_run, decode_fast_v1, general),
        }

    def send_run(
        self,
        decode: Callable[[Any], Any],
        general: GeneralWay,
        channel: Channel,
        frames: list[Frame],
    ) -> None:
        """
        Append and answer consecutive sends of one chunk together; unusual sends go the general way.
        """
        sends = len(frames)
        began = channel.last_io
        at: float | None = channel.served_at
        ticket = self._tickets.current or self._tickets.renew()
        cluster = ticket.cluster
        sender = "" if self._window is None else sender_of(channel.account)
        if sender:
            cluster += f"\x02{SENT_BY}\x01{sender}"
        born_host, store_host = channel.remote, self._store_host
        accepting = (
            ticket.is_allowed
            and (ticket.begins_ms <= 0 or self._now_ms() >= ticket.begins_ms)
            # a single send is counted only if it goes the general way
            and self._overload.reason(channel, sends if sends > 1 else 0) is None
        )
        topic, queues, window = None, 0, self._window
        drafts, opaques = list[Draft](), list[int | None]()  # None: one-way, no answer
        for _, header_bytes, body in frames:
            try:
                frame = decode(header_bytes)
                header = frame.ext
                if header.topic != topic:
                    topic = header.topic
                    queues = 0
                    if accepting:
                        queues = ticket.queues.get(topic) or self._tickets.ordinary_queues(topic)
                queue_id, text = header.queue_id, header.properties
                is_odd = not 0 <= queue_id < queues or header.batch or text[_LONG:] != ""
            except UNDECODABLE:
                text, is_odd = "", True  # the general way answers with the error
            # WAIT is true unless a client says otherwise; a true one is not stored, as in RocketMQ.
            head, mark, tail = text.partition(_WAIT_TRUE)
            if mark and (not tail or tail[0] == "\x02"):
                text = head + tail
            if text[-1:] == "\x02":  # some clients end properties with it
                text = text[:-1]
            keys, uniq_key, tags = "", "", None
            # One look at each property decides whether the frame is usual. A frame that needs more
            # than an append (delay, transaction, several keys, duplicates, ...) goes the general
            # way.
            for piece in text.split("\x02") if text else ():
                name, _, value = piece.partition("\x01")
                if name in _ODD or not (name and value):
                    is_odd = True
                elif name == UNIQ_KEY:
                    uniq_key = value
                elif name == TAGS:
                    tags = value
                elif name == KEYS:
                    keys = value
                    is_odd = is_odd or has_many_keys(keys)
            if not is_odd and window is not None:
                is_odd = not window.begins(header.topic, uniq_key, sender)
            if is_odd:
                topic = None  # the general way may create the topic
                # Earlier messages are appended first: answers keep the order of their requests.
                self._put(channel, drafts, opaques, began, at)
                drafts, opaques = [], []
                general(channel, header_bytes, body)
                ticket = self._tickets.current or self._tickets.renew()
                at = None  # read the clock again, as the general way may have taken long
                continue
            drafts.append(
                (
                    header.topic, queue_id, body, born_host, store_host, header.born_timestamp,
                    header.flag, header.sys_flag, header.reconsume_times, 0, keys, uniq_key, tags,
                    text + cluster if text else cluster[1:],
                )
            )  # fmt: skip
            opaques.append(None if frame.flag & FLAG_ONEWAY else frame.opaque)
        self._put(channel, drafts, opaques, began, at)

    def _put(
        self,
        channel: Channel,
        drafts: list[Draft],
        opaques: list[int | None],
        began: float,
        at: float | None,
    ) -> None:
        """
        Append the messages of the run so far; they are answered when flush and replication have
        decided.
        """
        if drafts:
            done: Done = partial(self._answer, channel, opaques, began)
            if self._window is not None:
                done = self._window.watched(drafts, done)
            ticket = self._tickets.current or self._tickets.renew()
            self._store.put_drafts(drafts, True, done, at, ticket.terms)

    def _answer(
        self,
        channel: Channel,
        opaques: list[int | None],
        began: float,
        status: PutMessageStatus,
        rows: Sequence[Any],
        others: Others,
        at: float,
    ) -> None:
        """
        Answer each message with its status; neighbours with the same status are answered together.
        """
        if others:
            every = range(len(rows))
            for outcome, numbers in groupby(every, lambda number: others.get(number, status)):
                part = list(numbers)
                first, end = part[0], part[-1] + 1
                self._answer(channel, opaques[first:end], began, outcome, rows[first:end], {}, at)
        elif status is PutMessageStatus.PUT_OK or status.is_stored:
            broker, code = self._broker, 0 if status is PutMessageStatus.PUT_OK else CODES[status]
            answers = encode_send_responses(
                opaques, rows, code, self._id_prefix, broker.region_id, broker.trace_on
            )
            if answers:
                channel.write(answers)
            self._stats.put_rows(rows, began, at)
        else:
            for opaque in opaques:
                if opaque is not None:
                    command = RemotingCommand(0, opaque=opaque)
                    channel.send(self._answers.refused(command, status))
