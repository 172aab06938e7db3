"""Forwarding: a former master passes its clients' requests on to the new master for a while.

Clients of RocketMQ ask for routes every 30 s, and send to the former master until then. Between the
last request that this broker serves itself and the first one that it passes on, requests wait.

Differs from RocketMQ on purpose, whose slaves refuse such requests.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.model.message import Address
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.remoting.dispatcher import Handler, RequestDispatcher, RunHandler
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameRun, decode_frame
from rmq_ha.server.broker.processors import fields
from rmq_ha.server.broker.standing import Standing
from rmq_ha.server.broker.twin import CONNECT_S, NOT_LEADING, Link, Twin, Way

FORWARDED = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.RECALL_MESSAGE,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.NOTIFICATION,
    }
)
"""Requests of clients that the new master answers. A slave refuses them, or answers with a copy."""
BOTH = frozenset({RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT})
"""
Requests that both brokers serve: this one still has the client's connection, and the new master
asks the client's producers about transactions and divides queues among its consumers.
"""
READY_S, READY_LOOK_S = 1.0, 0.01
PRESENTED_AT_ONCE, PRESENT_S = 50, 0.02
"""How many clients are presented to a new master at once, and the pause before the next ones."""


class _HandlerSet(NamedTuple):
    """The handlers of a dispatcher, in one of two states."""

    dispatcher: RequestDispatcher
    routes: Mapping[int, Handler]
    handle_run: RunHandler | None


class Forwarding:
    """
    Decides who answers the requests of clients after this broker lost the lead.

    :param open_link: makes a client for one connection to the new master.
    :param address: this broker's own address.
    :param heartbeats: returns connections of clients, and heartbeats for them, so that the new
        master knows all members of a group before the first of them asks it.
    :ivar master: address of the new master; empty if it is unknown.
    :ivar forwarded: how many requests were passed on so far.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        configuration: BrokerConfiguration,
        open_link: Callable[[], Link],
        address: str,
        heartbeats: Callable[[], Iterable[tuple[Channel, RemotingCommand]]] = tuple,
    ) -> None:
        self._clock = clock
        self._heartbeats = heartbeats
        self._configuration = configuration
        self._address = address
        self.open_link = open_link
        self.master = ""
        self.forwarded = 0
        self._leads = self._is_waiting = self._is_on = False
        self._ends_s = 0.0
        self._timer: IDelayedCall | None = None
        self._twins: dict[Channel, Twin] = {}
        self._passing: list[_HandlerSet] = []
        self._own: list[_HandlerSet] = []
        self._is_engaged = False

    def __len__(self) -> int:
        """Return how many client connections have a twin."""
        return len(self._twins)

    @property
    def leads(self) -> bool:
        """Whether this broker is the master and does not hand over."""
        return self._leads

    @property
    def seconds(self) -> int:
        """
        For how many seconds after a hand-over requests are passed on, as the key
        `forwardAfterHandoverSeconds` says; 0: not at all.
        """
        return self._configuration.ours.forward_after_handover_seconds

    # ------------------------------------------------------------ the role of this broker

    def lead(self, is_ready: Callable[[], bool] = lambda: True) -> None:
        """
        Serve all requests here from now on, as this broker is the master.

        :param is_ready: returns whether requests need not wait any more; they wait at most 1 s.
        """
        self._leads = True
        self._get_ready(is_ready, self._clock.seconds() + READY_S)

    def _get_ready(self, is_ready: Callable[[], bool], until: float) -> None:
        waits = not is_ready() and self._clock.seconds() < until
        self._set(waits=waits, on=False)
        if waits:
            self._timer = self._clock.callLater(READY_LOOK_S, self._look, is_ready, until)

    def _look(self, is_ready: Callable[[], bool], until: float) -> None:
        self._timer = None
        self._get_ready(is_ready, until)

    def wait(self) -> None:
        """
        Have requests wait, as this broker does not lead any more, or is about to hand over.

        If no new master is known within 3 s, this broker handles them, and refuses them as a slave.
        """
        if not self._leads:
            return
        self._leads = False
        if not self.seconds:
            self._set(waits=False, on=False)
            return
        self.master = ""
        self._ends_s = self._clock.seconds() + self.seconds
        self._set(waits=True, on=False, seconds=CONNECT_S)

    def follow(self, master: str | None) -> None:
        """Pass requests on to a new master from now on, until the time is over."""
        now = self._clock.seconds()
        if self._leads or not master or master in (self._address, self.master):
            return
        if now >= self._ends_s:
            return
        self.master = master
        self.log.info(
            "requests of this former master's clients go on to {master} for {seconds:.0f} s",
            master=master,
            seconds=self._ends_s - now,
        )
        self._set(waits=False, on=True, seconds=self._ends_s - now)
        self._present(iter(list(self._heartbeats())), master)

    def _present(self, clients: Iterator[tuple[Channel, RemotingCommand]], master: str) -> None:
        """Tell the new master the clients, some at a time, since each takes a connection."""
        if not self._is_on or self.master != master:
            return
        some = list(islice(clients, PRESENTED_AT_ONCE))
        for channel, heartbeat in some:
            if channel.is_open and not channel.is_relayed:
                self._twin(channel).copy(heartbeat)
        if some:
            self._clock.callLater(PRESENT_S, self._present, clients, master)

    def cannot(self, why: str) -> None:
        """Forward nothing until this broker led again, as the new master refuses."""
        if self._is_on:
            self.log.warn(
                "{master} takes no requests of this former master's clients, so that clients fail"
                " until they ask for routes, at most 30 s: {why}",
                master=self.master,
                why=why,
            )
            self._ends_s = 0.0
            self._set(waits=False, on=False)

    def stop(self) -> "Deferred[None]":
        """
        Forward nothing any more, as this broker stops. New requests get no answer: their clients
        send them again elsewhere when the connection is closed.

        :returns: fires when the requests that went on are answered, after 3 s at the latest.
        """
        self._leads, self._ends_s = False, 0.0
        self._set(waits=True, on=False)
        done: Deferred[None] = Deferred()
        self._end_twins(done, self._clock.seconds() + CONNECT_S)
        return done

    def _end_twins(self, done: "Deferred[None]", until: float) -> None:
        self._timer = None
        awaited = any(twin.is_awaited for twin in self._twins.values())
        if awaited and self._clock.seconds() < until:
            self._timer = self._clock.callLater(READY_LOOK_S, self._end_twins, done, until)
            return
        for twin in list(self._twins.values()):
            twin.end()
        self._set(waits=False, on=False)
        done.callback(None)

    def _set(self, *, waits: bool, on: bool, seconds: float = 0) -> None:
        self._is_waiting, self._is_on = waits, on
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds:
            self._timer = self._clock.callLater(seconds, self._time_is_over)
        self._engage()
        for twin in list(self._twins.values()):
            twin.pump()

    def _time_is_over(self) -> None:
        self._timer = None
        if self._is_on:
            self.log.info(
                "requests go on to {master} no more; {count} did since the start of this broker",
                master=self.master,
                count=self.forwarded,
            )
        self._set(waits=False, on=False)

    # ------------------------------------------------------------ for twins

    def way(self, client: Channel) -> Way:
        """
        Return who answers a client's next request.

        Requests that another broker passes on to this one never go on to a third one.
        """
        if self._is_waiting:
            return Way.WAIT
        return Way.ON if self._is_on and not client.is_relayed else Way.HERE

    def serve(self, handler: Handler, client: Channel, request: RemotingCommand) -> Any:
        """
        Answer a request here. If another broker passed it on and this one does not lead, refuse it
        with `NOT_LEADING`: then the other broker keeps it until a master is known.
        """
        if client.is_relayed and not self._leads:
            return request.response(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "this broker does not lead any more",
                {NOT_LEADING: "true"},
            )
        return handler(client, request)

    def forget(self, twin: Twin) -> None:
        self._twins.pop(twin.client, None)
        self._engage()

    # ------------------------------------------------------------ requests

    def watch(self, *dispatchers: RequestDispatcher) -> None:
        """Take requests of these dispatchers while any may have to wait or to go on."""
        for dispatcher in dispatchers:
            own = {
                code: handler
                for code, handler in dispatcher.routes.items()
                if code in FORWARDED or code in BOTH
            }
            taken: dict[int, Handler] = {
                code: partial(self._ask if code in FORWARDED else self._copy, handler)
                for code, handler in own.items()
            }
            run = dispatcher.handle_run
            self._own.append(_HandlerSet(dispatcher, own, run))
            run = None if run is None else partial(_one_by_one, dispatcher)
            self._passing.append(_HandlerSet(dispatcher, taken, run))

    def _engage(self) -> None:
        is_engaged = self._is_waiting or self._is_on or bool(self._twins)
        if is_engaged != self._is_engaged:
            self._is_engaged = is_engaged
            for dispatcher, routes, handle_run in self._passing if is_engaged else self._own:
                dispatcher.routes.update(routes)
                dispatcher.handle_run = handle_run

    def _twin(self, channel: Channel) -> Twin:
        twin = self._twins.get(channel)
        if twin is None:
            twin = self._twins[channel] = Twin(self._clock, self, channel)
        return twin

    def _ask(self, handler: Handler, channel: Channel, request: RemotingCommand) -> Any:
        if channel not in self._twins and self.way(channel) is Way.HERE:
            return self.serve(handler, channel, request)
        return self._twin(channel).ask(request, handler)

    def _copy(self, handler: Handler, channel: Channel, request: RemotingCommand) -> Any:
        answer = handler(channel, request)
        if self.way(channel) is Way.ON and channel.is_open:
            self._twin(channel).copy(request)
        return answer


def _one_by_one(
    dispatcher: RequestDispatcher,
    channel: Channel,
    run: FrameRun,
    valid: Sequence[RemotingCommand],
) -> None:
    for request in valid or [decode_frame(*frame) for frame in run.frames()]:
        dispatcher.go_general_way(channel, request)


class RelayedClients:
    """Takes the requests that a former master passes on."""

    def __init__(self, forwarding: Forwarding, standing: Standing) -> None:
        self._forwarding = forwarding
        self._standing = standing

    def routes(self) -> dict[int, fields.Handler]:
        return {RequestCode.RELAY_CLIENT: self.relay_client}

    def relay_client(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer RELAY_CLIENT (290003): the later requests of this connection are those of the client
        whose address is in the field `client`.

        :raises RequestRejected: this broker is not the master, or does not forward.
        """
        if not self._forwarding.seconds:
            raise RequestRejected(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                "forwardAfterHandoverSeconds=0: this broker takes no forwarded requests",
            )
        is_other = not self._forwarding.leads
        if why := "another one leads" if is_other else self._standing.why_not_master():
            raise RequestRejected(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"this broker is not the master: {why}"
            )
        try:
            host, port = parse_host_port(fields.text(fields.header(request), "client"))
            channel.stands_for(Address.parse(host, port))
        except ValueError as error:
            raise RequestRejected(ResponseCode.INVALID_PARAMETER, str(error)) from error
        return request.response()
