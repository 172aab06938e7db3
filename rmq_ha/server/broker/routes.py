"""Assigns request codes to processors.

Spec: remoting.md, section 2.1.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.remoting.audit import AuditLog
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.processors.fields import Handler
from rmq_ha.server.broker.standing import Standing

OF_A_MASTER = frozenset(
    {
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
    }
)
"""
Requests that only a certain master serves. A broker that looks like the master, and is not sure to
be it, refuses them, because their effect might be lost.
"""


class Processor(Protocol):
    def routes(self) -> dict[int, Handler]: ...


def add_routes(
    main: RequestDispatcher,
    fast: RequestDispatcher,
    processors: Iterable[Processor],
    audit: AuditLog,
    standing: Standing,
) -> None:
    """
    Add all handlers to both ports; the fast ("VIP") port serves everything but pulls and
    pops.

    :param audit: logs requests that change something for all clients.
    :param standing: decides whether this broker may act as the master.
    :raises ConfigurationError: two processors want the same code.
    """
    for processor in processors:
        for code, handler in processor.routes().items():
            if code in main.routes:
                raise ConfigurationError(
                    f"{type(processor).__name__} wants request code {code}, which is taken"
                )
            if code == RequestCode.LOCK_BATCH_MQ:
                handler = _with_check(handler, standing.check_alone)
            elif code in OF_A_MASTER:
                handler = _with_check(handler, standing.check)
            main.routes[code] = audit.wrap(code, handler)
            if code not in (RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE):
                fast.routes[code] = main.routes[code]


def _with_check(handler: Handler, check: Callable[[], None]) -> Handler:
    def checked(channel: Channel, request: RemotingCommand) -> Any:
        check()
        return handler(channel, request)

    return checked
