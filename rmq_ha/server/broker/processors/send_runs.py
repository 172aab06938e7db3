"""Runs of ordinary sends: appended and answered together; `rmq_ha.base.runs` cuts them.

A message with anything unusual leaves the run and goes the general way, in order.

Spec: remoting.md, chapter 4; store.md, section 2.7.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.model.message import offset_msg_id
from rmq_ha.base.model.properties import SENT_BY
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.runs.face import Sends
from rmq_ha.base.runs.row_list import rows_of
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import decode_frame
from rmq_ha.base.wire.send_header import answer_template
from rmq_ha.server.broker.duplicates import DuplicateWindow, sender_of
from rmq_ha.server.broker.overload import SendOverload
from rmq_ha.server.broker.processors.send_answers import CODES, SendAnswers
from rmq_ha.server.broker.processors.send_ticket import SendTickets
from rmq_ha.server.broker.stats import BrokerStats
from rmq_ha.server.store.log.append import DraftsOfSends
from rmq_ha.server.store.message_store import DefaultMessageStore
from rmq_ha.server.store.settle import Done, Others

GeneralWay = Callable[[Channel, RemotingCommand], None]


class SendRuns:
    """
    Stores ordinary sends in runs; this is the hot path of a master.

    :param tickets: the answers of the broker's policies.
    :param general: handles one request the general way.
    :param window: recognizes repeated messages, which leave the run; None: nothing is compared.
    """

    def __init__(
        self,
        configuration: BrokerConfiguration,
        store: DefaultMessageStore,
        stats: BrokerStats,
        overload: SendOverload,
        tickets: SendTickets,
        general: GeneralWay,
        window: DuplicateWindow | None = None,
    ) -> None:
        self._window = window
        self._tickets = tickets
        self._general = general
        self._broker = configuration.broker
        self._store = store
        self._stats = stats
        self._ways = stats.ways
        self._answers = SendAnswers(configuration, store)
        self._overload = overload
        self._store_host = configuration.store_host
        self._id_prefix = offset_msg_id(self._store_host, 0)[:-16]
        self._now_ms = store.host.now_ms

    def send_run(self, channel: Channel, sends: Sends, valid: Sequence[RemotingCommand]) -> None:
        """
        Append and answer the sends of one chunk together; a send that needs more than an append
        goes the general way, in order with the others.

        :param valid: the requests of the sends, if validators have decoded them; else none.
        """
        count = len(sends)
        began = channel.last_io
        at: float | None = channel.served_at
        ticket = self._tickets.current or self._tickets.renew()
        tail = ticket.cluster
        sender = "" if self._window is None else sender_of(channel.account)
        if sender:
            tail += f"\x02{SENT_BY}\x01{sender}"
        if not (
            ticket.is_allowed
            and (ticket.begins_ms <= 0 or self._now_ms() >= ticket.begins_ms)
            # a single send is counted only if it goes the general way
            and self._overload.reason(channel, count if count > 1 else 0) is None
        ):
            self._ways.policy += count
            for request in valid or [decode_frame(*frame) for frame in sends.frames()]:
                self._general(channel, request)
            return
        while True:
            # Each pass stores the longest beginning of `sends` that are ordinary (`fitting`), gives
            # the next one to the general way, and goes on behind it.
            topics = sends.topics
            queues: Sequence[Any] = tuple(map(ticket.queues.get, topics))
            if None in queues:
                queues = tuple(map(self._tickets.ordinary_queues, topics))
            fitting = known = sends.fit(queues)
            if self._window is not None:
                fitting = self._new(self._window, sends, fitting, sender)
            if fitting:
                fit = sends if fitting == count else sends.part(0, fitting)
                done: Done = partial(self._answer, channel, fit.opaques(), began)
                if self._window is not None:
                    done = self._window.watched(fit.uniq_keys(), done)
                drafts = DraftsOfSends(fit, channel.remote, self._store_host, tail)
                self._store.put_drafts(drafts, True, done, at, ticket.terms)
                if drafts.is_listed:
                    self._ways.limits += fitting
                else:
                    self._ways.run += fitting
            if fitting == count:
                return
            if fitting < known:
                self._ways.repeated += 1
            else:
                self._ways.queue += 1
            # Earlier messages are appended first: answers keep the order of their requests.
            rest = sends.part(fitting, count)
            self._general(channel, valid[fitting] if valid else decode_frame(*rest.frames()[0]))
            if len(rest) == 1:
                return
            # The general way may have created the topic, and may have taken long.
            ticket = self._tickets.current or self._tickets.renew()
            sends, valid, at = rest.part(1, len(rest)), valid[fitting + 1 :], None
            count = len(sends)

    @staticmethod
    def _new(window: DuplicateWindow, sends: Sends, fitting: int, sender: str) -> int:
        """Return how many of the first sends are no repetitions; they are under way from now on."""
        for number, (topic, uniq_key) in enumerate(sends.uniq_keys()[:fitting]):
            if not window.begins(topic, uniq_key, sender):
                return number
        return fitting

    def _answer(
        self,
        channel: Channel,
        opaques: Sequence[int | None],
        began: float,
        status: PutMessageStatus,
        rows: Any,
        others: Others,
        at: float,
    ) -> None:
        """
        Answer each message of a run with its status; neighbours with the same status are answered
        together.

        :param opaques: the numbers of the requests; None for a request that wants no answer.
        :param began: when the requests came, in seconds of the clock.
        :param status: the status of all messages that `others` does not name.
        :param rows: the rows of the stored messages, as `put_drafts` gave them.
        :param others: other statuses, by the message's number in the run.
        :param at: the present time, in seconds of the clock.
        """
        if others:
            row_list = list(rows)  # the kernel's rows have no slices
            every = range(len(row_list))
            for outcome, numbers in groupby(every, lambda number: others.get(number, status)):
                part = list(numbers)
                first, end = part[0], part[-1] + 1
                stored = row_list[first:end]
                if None not in stored:
                    stored = rows_of(stored)
                self._answer(channel, opaques[first:end], began, outcome, stored, {}, at)
        elif status is PutMessageStatus.PUT_OK or status.is_stored:
            broker, code = self._broker, 0 if status is PutMessageStatus.PUT_OK else CODES[status]
            template = answer_template(code, self._id_prefix, broker.region_id, broker.trace_on)
            try:
                answers = rows.answers(opaques, template)
            except RuntimeError:  # the maker of runs failed
                rows = rows_of(rows)
                answers = rows.answers(opaques, template)
            if answers:
                channel.write(answers, at)
            self._stats.put_rows(rows, began, at)
        else:
            for opaque in opaques:
                if opaque is not None:
                    outcome = self._answers.not_stored(status, None, b"")
                    command = RemotingCommand(0, opaque=opaque)
                    channel.send(command.response(outcome.code, outcome.remark, outcome.fields))
