"""Decides who may speak for a broker at a controller, and who may elect, forget and configure.

The controllers of RocketMQ 5.3.3 check nobody: anyone who reaches the port may do all of these.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from twisted.logger import Logger
from zope.interface import implementer

from rmq_ha.base.acl.refusals import RefusalLog
from rmq_ha.base.config.controller import ControllerConfig
from rmq_ha.base.errors import ConfigurationError, RequestRejected
from rmq_ha.base.interfaces import IAccessValidator
from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.model.networks import Networks, canonical
from rmq_ha.base.seams import Host
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.acl.grant import Grant
from rmq_ha.server.acl.service import PlainAccessControl
from rmq_ha.server.controller.broker_sets import BrokerSet, BrokerSets, KnownBroker
from rmq_ha.server.controller.codec import decode_header
from rmq_ha.server.controller.codes import ControllerRequestCode
from rmq_ha.server.controller.liveness import Liveness
from rmq_ha.server.controller.messages import (
    ANYONE,
    AlterSyncStateSetRequest,
    ApplyBrokerIdRequest,
    ControllerHeader,
    ElectMasterRequest,
    HeartbeatRequest,
    RegisterBrokerRequest,
)

OF_BROKERS = frozenset(
    {
        ControllerRequestCode.BROKER_HEARTBEAT,
        ControllerRequestCode.ALTER_SYNC_STATE_SET,
        ControllerRequestCode.ELECT_MASTER,
        ControllerRequestCode.REGISTER_BROKER,
        ControllerRequestCode.APPLY_BROKER_ID,
    }
)
OF_ADMINS = frozenset(
    {
        ControllerRequestCode.UPDATE_CONTROLLER_CONFIG,
        ControllerRequestCode.GET_CONTROLLER_CONFIG,
        ControllerRequestCode.CLEAN_BROKER_DATA,
    }
)
_OF_THE_LEADER = (OF_BROKERS | {ControllerRequestCode.CLEAN_BROKER_DATA}) - {
    ControllerRequestCode.BROKER_HEARTBEAT
}
_THIS_MACHINE = frozenset({"127.0.0.1", "::1"})
_REFUSAL_PERIOD_S = 60.0
_LOOK_UP_AGAIN_S = 2.0
_MOST_NAMES = 1000
_H = TypeVar("_H", bound=ControllerHeader)


class _RequestSender(NamedTuple):
    """
    The sender of a request.

    :ivar names: names in its certificate, if this controller trusts the certificate's root; else
        none.
    """

    host: str
    names: tuple[str, ...]


class RegisteredHosts:
    """
    The addresses of hosts that brokers have registered by name.

    An unknown name has no address yet, and is looked up. Strangers cannot cause a look-up more
    often than every 2 s for each name.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._known: dict[str, frozenset[str]] = {}
        self._not_before: dict[str, float] = {}

    def is_at(self, name: str, address: str) -> bool:
        """Whether an address is one of the name's, as far as is known now."""
        if address in self._known.get(name, ()):
            return True
        now = self._host.clock.seconds()
        if now >= self._not_before.get(name, now):
            if len(self._not_before) >= _MOST_NAMES:
                self._not_before.clear()
                self._known.clear()
            self._not_before[name] = now + _LOOK_UP_AGAIN_S
            self._host.network.look_up(name).addCallback(self._found, name)
        return False

    def _found(self, addresses: Iterable[str], name: str) -> None:
        self._known[name] = frozenset(canonical(address) or address for address in addresses)


class Administrators(PlainAccessControl):
    """Requires an administrator's signature or certificate, by the rules of the ACL files."""

    def _check(self, request: RemotingCommand, host: str) -> Grant | None:
        return self._rules.check_administrator(request, host)


@implementer(IAccessValidator)
class ControllerAccess:
    """
    Accepts a broker's requests from the host that it has registered, and an operator's from certain
    hosts.

    With `aclEnable` an administrator's signature is required instead. The requests of brokers
    at hosts in `controllerAllowedBrokers` need none, so that Java's brokers can get in.

    :param sets: the registered brokers and their addresses.
    :param liveness: tells which brokers are alive.
    :param peers: addresses of all controllers; their hosts count as operators'.
    :param leads: returns whether this controller leads. Any other controller answers requests for a
        decision with NOT_LEADER.
    :ivar administrators: checks signatures; None if nobody has to sign.
    :ivar refused: number of requests that were refused.
    :raises ConfigurationError: `aclEnable` is set, and its files cannot be used.
    """

    log = Logger()

    def __init__(
        self,
        host: Host,
        config: ControllerConfig,
        sets: BrokerSets,
        liveness: Liveness,
        peers: Iterable[str],
        leads: Callable[[], bool],
    ) -> None:
        self._is_open = config.controller_open_to_all
        self._allowed = Networks(config.controller_allowed_brokers)
        self._operators = Networks(config.controller_operator_hosts)
        self._sets = sets
        self._liveness = liveness
        self._steady_ms = host.steady_ms
        self._leads = leads
        self._names = RegisteredHosts(host)
        self._peers = [host_of(address) for address in peers]
        self._clock = host.clock
        self._refusals = RefusalLog(_REFUSAL_PERIOD_S)
        self.refused = 0
        self.administrators: Administrators | None = None
        if config.acl_enable and not self._is_open:
            if config.acl_directory is None:
                raise ConfigurationError(
                    "aclEnable=true: set aclDirectory to where plain_acl.yml is"
                )
            self.administrators = Administrators(
                host,
                config.acl_directory,
                strict=True,
                reply_topic="",
                record_at=lambda physical_offset: None,
                keys=config,
            )

    def validate(self, request: RemotingCommand, remote_address: str) -> None:
        """
        Let a request pass.

        :raises RequestRejected: the request comes neither from its broker nor from an operator.
        """
        code = request.code
        if self._is_open or (code not in OF_BROKERS and code not in OF_ADMINS):
            return
        if code in _OF_THE_LEADER and not self._leads():
            return
        host = host_of(remote_address)
        is_listed = bool(self._allowed) and host in self._allowed
        if self.administrators is not None and (code in OF_ADMINS or not is_listed):
            self.administrators.validate(request, remote_address)
            return
        reason = self._why_not(
            request, _RequestSender(canonical(host) or host, request.security.names)
        )
        if not reason:
            return
        self.refused += 1
        line = self._refusals.count(host, self._clock.seconds())
        if line is not None:
            self.log.warn(
                "refused request {code} of {peer}: {reason} ({silent} refusals before it were not "
                "logged)",
                code=int(code),
                peer=remote_address,
                reason=reason,
                silent=line.silent,
            )
        raise RequestRejected(ResponseCode.NO_PERMISSION, reason)

    # ------------------------------------------------------------ the rules

    def _why_not(self, request: RemotingCommand, peer: _RequestSender) -> str:
        """Return why the request is refused; empty: it is accepted."""
        code = request.code
        if code in OF_ADMINS:
            return self._why_no_operator(peer)
        if code == ControllerRequestCode.ELECT_MASTER:
            return self._why_no_election(_header(ElectMasterRequest, request), peer)
        if code == ControllerRequestCode.APPLY_BROKER_ID:
            return self._why_no_id(_header(ApplyBrokerIdRequest, request), peer)
        if code == ControllerRequestCode.REGISTER_BROKER:
            return self._why_not_here(_header(RegisterBrokerRequest, request), peer)
        if code == ControllerRequestCode.ALTER_SYNC_STATE_SET:
            change = _header(AlterSyncStateSetRequest, request)
            return self._why_not_its(change.broker_name, change.master_broker_id, "", peer)
        beat = _header(HeartbeatRequest, request)
        return self._why_not_its(beat.broker_name, beat.broker_id, beat.broker_addr, peer)

    def _why_not_its(
        self, name: str, number: int | None, claimed: str, peer: _RequestSender
    ) -> str:
        """
        Return why a request is not accepted as a request of that broker; empty: it is accepted.

        :param claimed: the address that an unknown broker claims to have; empty: an unknown broker
            is accepted here, since the decision will refuse it anyway.
        """
        known = self._broker(name, number)
        address = claimed if known is None else known.address
        if not address or self._is_of(peer, address):
            return ""
        return (
            f"broker {number} of {name[:100]} is registered at {address[:100]}, and this came from "
            f"{peer.host}: if that is the same broker (behind NAT, or moved), add {peer.host} to "
            "controllerAllowedBrokers of every controller"
        )

    def _why_no_id(self, request: ApplyBrokerIdRequest, peer: _RequestSender) -> str:
        claimed = request.register_check_code.partition(";")[0]
        if self._allowed:
            if peer.host in self._allowed:
                return ""
            return (
                f"{peer.host} is not in controllerAllowedBrokers={self._allowed.text}: add it "
                "there, at every controller, if it is a broker of yours"
            )
        if self._is_of(peer, claimed):
            return ""
        return (
            f"a broker at {claimed[:100]} wants an id, and this came from {peer.host}: set "
            "brokerIP1 to the address that it connects from, or add "
            f"{peer.host} to controllerAllowedBrokers of every controller"
        )

    def _why_not_here(self, request: RegisterBrokerRequest, peer: _RequestSender) -> str:
        """
        Return why a registration is refused. A broker that has moved is accepted from a listed
        host, once its old place is silent.
        """
        name, number = request.broker_name, request.broker_id
        reason = self._why_not_its(name, number, "", peer)
        if not reason and self._is_foreign(name, number, peer):
            is_alive = self._liveness.is_alive(name, number, self._steady_ms())
            reason = f"broker {number} of {name[:100]} is alive elsewhere" if is_alive else ""
        return reason

    def _is_foreign(self, name: str, number: int, peer: _RequestSender) -> bool:
        """
        Whether the registered address is not the sender's, so that only the list of hosts lets it
        pass.
        """
        known = self._broker(name, number)
        return known is not None and not self._is_at(peer, known.address)

    def _why_no_election(self, request: ElectMasterRequest, peer: _RequestSender) -> str:
        """
        Return why an election is refused. Each broker may ask for itself; a broker in sync may name
        another, as in a hand-over.
        """
        broker_set = self._sets.get(request.broker_name)
        if broker_set is None:
            return ""
        if request.designate_elect or request.broker_id == ANYONE:
            voters = _members(broker_set)
        else:
            own = broker_set.brokers.get(request.broker_id)
            voters = [] if own is None else [own]
        if any(self._is_of(peer, broker.address) for broker in voters):
            return ""
        return self._why_no_operator(peer)

    def _why_no_operator(self, peer: _RequestSender) -> str:
        is_known = peer.host in _THIS_MACHINE or peer.host in self._operators
        if is_known or any(self._is_at(peer, f"{host}:0") for host in self._peers):
            return ""
        return (
            f"{peer.host} is no operator's: ask from a controller's machine, or add it to "
            "controllerOperatorHosts of every controller"
        )

    # ------------------------------------------------------------ where things are

    def _broker(self, name: str, number: int | None) -> KnownBroker | None:
        broker_set = self._sets.get(name)
        return None if broker_set is None or number is None else broker_set.brokers.get(number)

    def _is_of(self, peer: _RequestSender, address: str) -> bool:
        return self._is_at(peer, address) or (bool(self._allowed) and peer.host in self._allowed)

    def _is_at(self, peer: _RequestSender, address: str) -> bool:
        """
        Whether the sender is that host, by address or certificate.

        A connection from 127.0.0.1 always counts: it may come from any process of this machine,
        which belongs to an operator.
        """
        host = host_of(address)
        if peer.host in _THIS_MACHINE or (host and host in peer.names):
            return True
        place = canonical(host)
        return peer.host == place if place is not None else self._names.is_at(host, peer.host)


def _members(broker_set: BrokerSet) -> list[KnownBroker]:
    return [broker_set.brokers[number] for number in broker_set.members]


def _header(kind: type[_H], request: RemotingCommand) -> _H:
    return decode_header(kind, request.ext)
