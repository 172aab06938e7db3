"""A broker's conversation with its controllers: the `ReplicasManager` on real connections.

Spec: controller.md, chapters 3 and 5.
"""

from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.remoting.calls import Calls
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.seams import Host
from rmq_ha.base.timing.timer import rearm
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.ext_fields import ext_fields
from rmq_ha.server.controller.codec import decode_header
from rmq_ha.server.controller.codes import ControllerRequestCode
from rmq_ha.server.controller.messages import NotifyRoleChangedRequest, SyncStateSet
from rmq_ha.server.replication.epochs.roles.actions import (
    Accept,
    Action,
    Adopt,
    Apply,
    AskController,
    ControllerAnswer,
    Follow,
    Lead,
    StepDown,
    Withdraw,
)
from rmq_ha.server.replication.epochs.roles.identity import IdentityFiles
from rmq_ha.server.replication.epochs.roles.manager import ReplicasManager

TIMEOUT_MS = 3000

Decision = Lead | Follow | StepDown | Adopt


class RoleOwner(Protocol):
    """Takes the roles that the controllers give."""

    def decided(self, decision: Decision) -> None:
        """
        Take a decision; they come one after the other, in order.

        An owner that cannot take a role calls `ControllerClient.failed` later.
        """


class ControllerClient:
    """
    Sends the manager's requests to the controllers, and writes to the disk what the manager must
    remember.

    :param files: the files with this broker's id; loaded.
    :param client: calls the controllers; the broker stops it.
    """

    log = Logger()

    def __init__(
        self,
        host: Host,
        manager: ReplicasManager,
        files: IdentityFiles,
        client: Calls,
        owner: RoleOwner,
    ) -> None:
        self.manager = manager
        self._host = host
        self._files = files
        self._client = client
        self._owner = owner
        self._timer: IDelayedCall | None = None
        self._is_running = False
        self._is_draining = False
        self._complained: dict[str, str] = {}
        self._change: Deferred[None] = succeed(None)

    @property
    def may_accept(self) -> bool:
        """Whether this broker leads, and no other broker can have been elected yet."""
        return self._is_running and self.manager.may_accept(self._now())

    @property
    def led_until(self) -> float:
        """
        Return `ReplicasManager.led_until` as a time of the host's clock, which stops while the
        machine is suspended.
        """
        now = self._now()
        return self._host.clock.seconds() - now + self.manager.led_until(now)

    @property
    def complaint(self) -> str:
        """
        Return for operators which controller did not answer, and why; empty: all that were asked
        have answered.
        """
        told = "; ".join(f"{address} {why}" for address, why in self._complained.items())
        return f"controller {told}" if told else ""

    def start(self) -> None:
        """Begin to look for the controllers."""
        self._is_running = True
        self._on_time()

    def stop(self) -> "Deferred[None]":
        """
        Send nothing more. For the controllers a stop looks like a death, as with Java's broker.

        :returns: fires when no request for a change of the set is unanswered. After a restart this
            broker may go on as master in the same epoch, and its puts would not wait for a broker
            that such a change adds.
        """
        self._is_running = False
        self._timer = rearm(self._host.clock, self._timer, None, self._on_time)
        return self._change

    def notified(self, _: Channel, request: RemotingCommand) -> None:
        """
        Take request 1008, which has no answer.

        :raises RequestRejected: the request cannot be read.
        """
        header = decode_header(NotifyRoleChangedRequest, request.ext)
        if self._is_running:
            self.manager.notified(header, self._now())
            self._drain()

    def propose(self, proposal: SyncStateSet) -> None:
        """Ask, as master, for a change of the set."""
        if self._is_running:
            self.manager.propose(proposal, self._now())
            self._drain()

    def beat(self) -> None:
        if self._is_running:
            self.manager.beat(self._now())
            self._drain()

    def failed(self) -> None:
        """Tell the manager that the role could not be taken."""
        self.manager.failed(self._now())
        self._drain()

    def _now(self) -> float:
        """
        Return a time that goes on while this machine is suspended, in seconds.

        Nobody waits for a master whose machine is suspended: another one is elected. So the lease
        has to be over before the first message is taken afterwards.
        """
        return self._host.boot_seconds()

    def _on_time(self) -> None:
        self.manager.tick(self._now())
        self._drain()

    def _drain(self) -> None:
        """Carry out the manager's actions in order, and then the actions that result from them."""
        if self._is_draining:
            return
        self._is_draining = True
        try:
            while self._is_running and (actions := self.manager.take()):
                for action in actions:
                    self._act(action)
        finally:
            self._is_draining = False
        deadline: float | None = None
        if self._is_running:
            deadline = self._host.clock.seconds() - self._now() + self.manager.deadline()
        self._timer = rearm(self._host.clock, self._timer, deadline, self._on_time)

    def _act(self, action: Action) -> None:
        if isinstance(action, AskController):
            self._ask(action)
        elif isinstance(action, Apply):
            self._keep(self._files.apply, action.application)
        elif isinstance(action, Accept):
            self._keep(self._files.accept, action.identity)
        elif isinstance(action, Withdraw):
            self._keep(self._files.withdraw)
        else:
            self._owner.decided(action)

    def _ask(self, ask: AskController) -> None:
        ext = None if ask.header is None else ext_fields(ask.header)
        command = RemotingCommand(ask.code, ext=ext, body=ask.body or None)
        asked = self._client.invoke(ask.address, command, TIMEOUT_MS).addCallbacks(
            partial(self._answered, ask), partial(self._unanswered, ask)
        )
        if ask.code == ControllerRequestCode.ALTER_SYNC_STATE_SET:
            self._change = asked

    def _answered(self, ask: AskController, response: RemotingCommand) -> None:
        answer = ControllerAnswer(
            response.code, response.remark, response.ext or {}, response.body or b""
        )
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._complain(ask.address, "is no controller; correct controllerAddr")
        elif response.code == ResponseCode.NO_PERMISSION:
            self._complain(ask.address, f"refuses this broker: {response.reason}")
        elif self._complained.pop(ask.address, None) is not None:
            self.log.info("controller {address} answers again", address=ask.address)
        self._take_answer(ask, answer)

    def _complain(self, address: str, why: str) -> None:
        """Log a controller's fault once, until it has another one."""
        if self._complained.get(address) != why:
            self._complained[address] = why
            self.log.warn(
                "controller {address} {why}; without a controller nobody is elected, and a master "
                "takes no messages any more",
                address=address,
                why=why,
            )

    def _unanswered(self, ask: AskController, failure: Failure) -> None:
        self.log.debug(
            "controller {address} does not answer {code}: {why}",
            address=ask.address,
            code=ask.code,
            why=failure.getErrorMessage(),
        )
        self._complain(ask.address, "does not answer: look at it, and at controllerAddr")
        self._take_answer(ask, None)

    def _take_answer(self, ask: AskController, answer: ControllerAnswer | None) -> None:
        if self._is_running:
            self.manager.answered(ask, answer, self._now())
            self._drain()

    def _keep(self, write: Any, *what: Any) -> None:
        written: Deferred[None] = self._host.worker.call(write, *what)
        written.addCallbacks(self._write_done, self._write_failed)

    def _write_done(self, _: None) -> None:
        self.manager.write_done(self._now())
        self._drain()

    def _write_failed(self, failure: Failure) -> None:
        self.log.failure("cannot keep the id of this broker; it is tried again", failure)
        self.manager.write_failed(self._now())
        self._drain()
