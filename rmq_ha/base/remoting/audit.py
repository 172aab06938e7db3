"""The audit log: one line for each request that created, changed, deleted, reset or cloned
something, and for each change of the master.

Its lines have a log namespace of their own. docs/security.md lists their fields.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.acl.refusals import RefusalLog
from rmq_ha.base.config import properties
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.printable import NamedValues
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.remoting.dispatcher import Handler
from rmq_ha.base.wire.command import RemotingCommand

NAMESPACE = "rmq_ha.audit"
NOBODY = "-"
REFUSAL_PERIOD_S = 10.0
_MOST_SHOWN = 200
"""Most characters of one name or value in a line."""


class Act(NamedTuple):
    """
    The change that a request asks for.

    :ivar verb: `created`, `changed`, `deleted`, ...
    :ivar kind: the kind of thing that is changed: `topic`, `group`, `account`, ...
    :ivar item: the name of this thing.
    :ivar details: further values of the request; no secrets.
    """

    verb: str
    kind: str
    item: str
    details: Mapping[str, Any] = {}


Describe = Callable[[RemotingCommand], Act]


class AuditLog:
    """
    Wraps the handlers of requests that change something for all.

    Refused requests are logged too, once in ten seconds for each address.

    :param acts: by request code; describes a request before it is done, and never fails for one
        that can be done.
    """

    def __init__(self, clock: IReactorTime, acts: Mapping[int, Describe]) -> None:
        self.log = Logger(namespace=NAMESPACE)  # a class attribute would get the class's name
        self._clock = clock
        self._acts = acts
        self._refusals = RefusalLog(REFUSAL_PERIOD_S)

    def wrap(self, code: int, handler: Handler) -> Handler:
        """Make a handler that logs a line for each request; unchanged if `acts` lacks the code."""
        describe = self._acts.get(code)
        if describe is None:
            return handler

        def audited(channel: Channel, request: RemotingCommand) -> Any:
            act = _describe(describe, request)
            try:
                answer = handler(channel, request)
            except RequestRejected as refused:
                self._tell(channel, request, act, refused.code, refused.remark)
                raise
            if isinstance(answer, Deferred):
                return answer.addCallbacks(
                    self._answered,
                    self._failed,
                    callbackArgs=(channel, request, act),
                    errbackArgs=(channel, request, act),
                )
            return self._answered(answer, channel, request, act)

        return audited

    def _answered(
        self, answer: RemotingCommand | None, channel: Channel, request: RemotingCommand, act: Act
    ) -> RemotingCommand | None:
        if answer is not None:
            self._tell(channel, request, act, answer.code, answer.remark)
        return answer

    def _failed(
        self, failure: Failure, channel: Channel, request: RemotingCommand, act: Act
    ) -> Failure:
        code = getattr(failure.value, "code", 1)
        self._tell(channel, request, act, code, failure.getErrorMessage())
        return failure

    def _tell(
        self, channel: Channel, request: RemotingCommand, act: Act, code: int, remark: str | None
    ) -> None:
        account = NOBODY if request.grant is None else request.grant.account
        certificate = ", ".join(channel.security.names)[:_MOST_SHOWN]
        fields = {
            "log_kind": (NAMESPACE, account, channel.host),  # one account's flood hides no others
            "account": account,
            "certificate": certificate or NOBODY,
            "who": _caller_text(account, certificate, channel.remote_text),
            "peer": channel.remote_text,
            "code": int(request.code),
            "verb": act.verb,
            "kind": act.kind,
            "item": act.item,
            "details": NamedValues(act.details),
        }
        if not code:
            self.log.info("{who} {verb} {kind} {item!r}{details}", **fields)
            return
        line = self._refusals.count(channel.host, self._clock.seconds())
        if line is not None:
            self.log.warn(
                "{who} asked in vain: {verb} {kind} {item!r}{details}. The answer was code "
                "{answer}, {reason!r} ({silent} refusals before this one were not logged)",
                answer=int(code),
                reason=remark or "",
                silent=line.silent,
                **fields,
            )


class OwnActs:
    """Audit lines for a server's own acts, like a change of its role."""

    def __init__(self) -> None:
        self.log = Logger(namespace=NAMESPACE)

    def tell(self, verb: str, kind: str, item: str, **details: Any) -> None:
        """Log a line with the fields of a request's line; account and peer are `-`."""
        self.log.info(
            "this server {verb} {kind} {item!r}{details}",
            log_kind=(NAMESPACE, NOBODY, NOBODY),
            account=NOBODY,
            peer=NOBODY,
            code=0,
            verb=verb,
            kind=kind,
            item=item,
            details=NamedValues(details),
        )


def _caller_text(account: str, certificate: str, peer: str) -> str:
    """Return `ops (CN=ops) at 10.0.0.1:5`; only the address without account and certificate."""
    name = certificate if account == NOBODY else account
    if certificate and account != NOBODY:
        name = f"{account} ({certificate})"
    return f"{name} at {peer}" if name else peer


def by_header(verb: str, kind: str, name: str, *details: str) -> Describe:
    """
    Make a function that describes a request by fields of its header.

    :param name: the field that names the changed thing.
    :param details: fields to show if the header has them.
    """

    def describe(request: RemotingCommand) -> Act:
        ext = request.ext or {}
        shown = {key: shown_value(key, ext[key]) for key in details if key in ext}
        return Act(verb, kind, ext.get(name, "")[:_MOST_SHOWN], shown)

    return describe


def changed_configuration(request: RemotingCommand) -> Act:
    """Describe a change of settings (request codes 25 and 318) by its keys and new values."""
    items = properties.parse((request.body or b"").decode("utf-8", "replace"))
    changes = {item.key: shown_value(item.key, item.value.strip()) for item in items}
    return Act("changed", "configuration", ", ".join(sorted(changes))[:_MOST_SHOWN], changes)


def shown_value(key: str, value: str) -> str:
    """Return a value for the log: cut if it is long, and `***` if it is a secret."""
    if "secret" in key.lower() or "password" in key.lower():
        return "***"
    return value if len(value) <= _MOST_SHOWN else f"{value[:_MOST_SHOWN]}..."


def _describe(describe: Describe, request: RemotingCommand) -> Act:
    """Describe a request; one that cannot be read is left to its handler, which refuses it."""
    try:
        return describe(request)
    except Exception as error:
        return Act("asked for", "something", str(int(request.code)), {"unreadable": str(error)})
