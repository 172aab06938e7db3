"""RequestDispatcher: finds the handler of a request, and answers requests whose handler fails.

Spec: remoting.md, sections 1.6 and 2.1.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.errors import ProtocolViolation, RequestRejected
from rmq_ha.base.interfaces import IAccessValidator
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import FLAG_RESPONSE, RemotingCommand
from rmq_ha.base.wire.frame import Cut, FrameRun, decode_frame
from rmq_ha.base.wire.json_header import decode_plain_header

Answer = RemotingCommand | Deferred[RemotingCommand | None] | Deferred[RemotingCommand] | None
Handler = Callable[[Channel, RemotingCommand], Answer]
RunHandler = Callable[[Channel, Any, Sequence[RemotingCommand]], Any]
"""
The type of the handler of runs. It gets the channel, a `FrameRun`, and the decoded requests of the
run, which are missing if there are no validators.
"""

OTHER_CODES = -1
_CODES = frozenset(map(int, ResponseCode))


class RequestDispatcher:
    """
    Routes requests to handlers by code, and runs of requests to the handler of runs.

    That handler answers with `channel.write`, and leaves one-way requests without an answer. It
    gets only requests that all validators accept.

    :ivar routes: handlers by request code.
    :ivar cut: finds runs in the bytes of later connections; None: there are no runs.
    :ivar handle_run: the handler of runs.
    :ivar default: the handler of all other codes; without it they are answered with code 3.
    :ivar answers_unknown: whether unknown codes are answered at all if `default` is None; a name
        server stays silent.
    :ivar negative: how many answers had each code other than 0, without those of `handle_run`.
        `OTHER_CODES` stands for codes that this server does not know and only passes on.
    :ivar violations: how many connections were closed because of bytes that the peer sent.
    """

    log = Logger()

    def __init__(self, validators: Sequence[IAccessValidator] = ()) -> None:
        self.routes: dict[int, Handler] = {}
        self.cut: Cut | None = None
        self.handle_run: RunHandler | None = None
        self.default: Handler | None = None
        self.answers_unknown = True
        self.negative: dict[int, int] = {}
        self.violations = 0
        self._validators = tuple(validators)
        if not validators:
            self.dispatch_run = self._serve_run  # type: ignore[method-assign]

    def dispatch_run(self, channel: Channel, run: FrameRun) -> None:
        """
        Give a run to its handler; if the handler raises, each request is answered with code 1.

        All requests of one call are signed by the account in `channel.account`. The run is divided
        at a request that a validator refuses, or might read differently than the handler.

        :raises ProtocolViolation: a header cannot be read; the requests before it are served.
        """
        # `valid` has the accepted requests from number `first` on, all of one account. They are
        # served as one run as soon as a request comes that cannot join them.
        valid: list[RemotingCommand] = []
        account, first = "", 0
        frames = run.frames()
        for number, frame in enumerate(frames):
            request = decode_plain_header(frame[1])
            if request is not None:
                request.body = frame[2] or None
                is_valid = self._is_valid(channel, request)
                now = channel.account
                if is_valid and (not valid or now == account):
                    account = now
                    valid.append(request)
                    continue
            if valid:
                channel.account = account
                self._serve_run(channel, run.part(first, number), valid)
            first, valid = number + 1, []
            if request is None:
                self.dispatch(channel, decode_frame(*frame))
            elif is_valid:
                account = channel.account = now
                first, valid = number, [request]
        if valid:
            self._serve_run(channel, run.part(first, len(frames)), valid)

    def _serve_run(
        self, channel: Channel, run: FrameRun, valid: Sequence[RemotingCommand] = ()
    ) -> None:
        """
        Give a run to its handler, or without one each request to its own handler. If the handler of
        runs raises, each request is answered with code 1.

        :param valid: the requests of the run, if validators have decoded them; else empty.
        :raises ProtocolViolation: a header cannot be read.
        """
        try:
            if self.handle_run is None:
                for frame in run.frames():
                    self._serve(channel, decode_frame(*frame))
            else:
                self.handle_run(channel, run, valid)
        except ProtocolViolation:
            raise
        except Exception:
            failure = _current_failure()
            self.log.failure("run of requests, from {peer}", failure, peer=channel.remote_text)
            for frame in run.frames():
                request = decode_frame(*frame)
                self._respond(channel, request, _answer_failure(request, failure))

    def dispatch(self, channel: Channel, request: RemotingCommand) -> None:
        """Validate and answer a request, now or when its handler's Deferred fires."""
        if not self._validators or self._is_valid(channel, request):
            self._serve(channel, request)

    def go_general_way(self, channel: Channel, request: RemotingCommand) -> None:
        """
        Answer a request of a run by its ordinary handler, as the run's handler does not take it.

        The request is not validated again: a validator accepts some requests only once.
        """
        self._serve(channel, request)

    def _serve(self, channel: Channel, request: RemotingCommand) -> None:
        try:
            handler = self.routes.get(request.code, self.default)
            answer = self._unknown(request) if handler is None else handler(channel, request)
        except Exception:
            self._on_failure(_current_failure(), channel, request)
            return
        if answer is None:
            return
        if isinstance(answer, Deferred):
            answer.addCallbacks(
                self._on_answer,
                self._on_failure,
                callbackArgs=(channel, request),
                errbackArgs=(channel, request),
            )
            answer.addErrback(self._on_failure, channel, request)
        else:
            try:
                self._respond(channel, request, answer)
            except Exception:
                self._on_failure(_current_failure(), channel, request)

    def _is_valid(self, channel: Channel, request: RemotingCommand) -> bool:
        """Whether all validators accept a request; else answer it with the refusal."""
        request.security = channel.security
        try:
            for validator in self._validators:
                validator.validate(request, channel.remote_text)
        except Exception:
            self._on_failure(_current_failure(), channel, request)
            return False
        channel.account = "" if request.grant is None else request.grant.account
        return True

    def _unknown(self, request: RemotingCommand) -> RemotingCommand | None:
        if not self.answers_unknown:
            return None
        return request.response(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f" request type {request.code} not supported",
        )

    def _on_answer(
        self, answer: RemotingCommand | None, channel: Channel, request: RemotingCommand
    ) -> None:
        if answer is not None:
            self._respond(channel, request, answer)

    def _on_failure(self, failure: Failure, channel: Channel, request: RemotingCommand) -> None:
        error = failure.value
        if isinstance(error, RequestRejected):
            response = request.response(error.code, error.remark)
        elif isinstance(error, ProtocolViolation):  # the peer's fault: no traceback
            self.log.warn(
                "request {code} from {peer} cannot be served: {error}",
                code=request.code,
                peer=channel.remote_text,
                error=error,
            )
            response = _answer_failure(request, failure)
        else:
            self.log.failure(
                "request {code} from {peer}", failure, code=request.code, peer=channel.remote_text
            )
            response = _answer_failure(request, failure)
        try:
            self._respond(channel, request, response)
        except ProtocolViolation as violation:
            self.log.error(
                "no answer to {peer}: {error}", peer=channel.remote_text, error=violation
            )

    def _respond(
        self, channel: Channel, request: RemotingCommand, response: RemotingCommand
    ) -> None:
        if request.is_oneway:
            return
        if response.code:
            code = int(response.code) if response.code in _CODES else OTHER_CODES
            self.negative[code] = self.negative.get(code, 0) + 1
        response.opaque = request.opaque
        response.flag |= FLAG_RESPONSE
        response.binary = request.binary
        channel.send(response)


def _answer_failure(request: RemotingCommand, failure: Failure) -> RemotingCommand:
    name = getattr(failure.type, "__name__", str(failure.type))
    return request.response(ResponseCode.SYSTEM_ERROR, f"{name}: {failure.getErrorMessage()}")


def _current_failure() -> Failure:
    return Failure()  # type: ignore[no-untyped-call]
