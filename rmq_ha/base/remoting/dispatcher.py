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
from rmq_ha.base.wire.frame import JSON, Frame, decode_frame
from rmq_ha.base.wire.json_header import decode_plain_header

Answer = RemotingCommand | Deferred[RemotingCommand | None] | Deferred[RemotingCommand] | None
Handler = Callable[[Channel, RemotingCommand], Answer]
BulkHandler = Callable[[Channel, list[Frame]], Any]

OTHER_CODES = -1
_CODES = frozenset(map(int, ResponseCode))


class RequestDispatcher:
    """
    Routes requests to handlers by code, and sequences of frames of one code to bulk handlers.

    A bulk handler gets frames that follow each other, and answers them with `channel.write`. It has
    to leave one-way requests without an answer. It gets only frames that all validators accept.

    :ivar routes: handlers by request code.
    :ivar bulk: bulk handlers by the first bytes of a JSON header (`b'{"code":310,'`).
    :ivar default: the handler of all other codes; without it they are answered with code 3.
    :ivar answers_unknown: whether unknown codes are answered at all if `default` is None; a name
        server stays silent.
    :ivar negative: how many answers had each code other than 0, without those of bulk handlers.
        `OTHER_CODES` stands for codes that this server does not know and only passes on.
    :ivar violations: how many connections were closed because of bytes that the peer sent.
    """

    log = Logger()

    def __init__(self, validators: Sequence[IAccessValidator] = ()) -> None:
        self.routes: dict[int, Handler] = {}
        self.bulk: dict[bytes, BulkHandler] = {}
        self.default: Handler | None = None
        self.answers_unknown = True
        self.negative: dict[int, int] = {}
        self.violations = 0
        self._validators = tuple(validators)
        if not validators:
            self.dispatch_bulk = self._serve_bulk  # type: ignore[method-assign]
        self._checked: dict[int, RemotingCommand] = {}  # by the `id` of the header

    def bulk_key(self, frame: Frame) -> bytes | None:
        """Return the key of the bulk handler for a frame; None if it has none."""
        kind, header, _ = frame
        if kind == JSON:
            for key in self.bulk:
                if header.startswith(key):
                    return key
        return None

    def dispatch_bulk(self, channel: Channel, key: bytes, frames: list[Frame]) -> None:
        """
        Give frames to a bulk handler in one call; if it raises, each frame is answered with code 1.

        All requests of one call are signed by the account in `channel.account`.

        :raises ProtocolViolation: a header cannot be read; the frames before it are served.
        """
        run: list[Frame] = []
        account = ""
        checked = self._checked = {}  # of this run, whose frames live as long as it does
        try:
            for frame in frames:
                # A header that validator and handler might read differently is not for bulk.
                request = decode_plain_header(frame[1])
                if request is None or key != b'{"code":%d,' % request.code:
                    done, run = run, []
                    self._serve_bulk(channel, key, done)
                    self.dispatch(channel, decode_frame(*frame))
                    continue
                request.body = frame[2] or None
                if self._is_valid(channel, request):
                    if run and channel.account != account:
                        now, channel.account = channel.account, account
                        done, run = run, []
                        self._serve_bulk(channel, key, done)
                        channel.account = now
                    account = channel.account
                    run.append(frame)
                    checked[id(frame[1])] = request
        except ProtocolViolation:
            self._serve_bulk(channel, key, run)
            raise
        else:
            self._serve_bulk(channel, key, run)
        finally:
            self._checked = {}

    def _serve_bulk(self, channel: Channel, key: bytes, frames: list[Frame]) -> None:
        if not frames:
            return
        try:
            self.bulk[key](channel, frames)
        except ProtocolViolation:
            raise
        except Exception:
            failure = _current_failure()
            self.log.failure("bulk handler, from {peer}", failure, peer=channel.remote_text)
            for frame in frames:
                request = decode_frame(*frame)
                self._respond(channel, request, _failed(request, failure))

    def dispatch(self, channel: Channel, request: RemotingCommand) -> None:
        """Validate and answer a request, now or when its handler's Deferred fires."""
        if not self._validators or self._is_valid(channel, request):
            self._serve(channel, request)

    def go_general_way(self, channel: Channel, header: bytes, body: bytes) -> None:
        """
        Answer a frame by its ordinary handler, as the bulk handler does not take it.

        The frame was validated before the bulk call and is not validated again: a validator accepts
        some requests only once.
        """
        if self._validators:
            request = self._checked.pop(id(header))
        else:
            request = decode_frame(JSON, header, body)
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
            response = _failed(request, failure)
        else:
            self.log.failure(
                "request {code} from {peer}", failure, code=request.code, peer=channel.remote_text
            )
            response = _failed(request, failure)
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


def _failed(request: RemotingCommand, failure: Failure) -> RemotingCommand:
    name = getattr(failure.type, "__name__", str(failure.type))
    return request.response(ResponseCode.SYSTEM_ERROR, f"{name}: {failure.getErrorMessage()}")


def _current_failure() -> Failure:
    return Failure()  # type: ignore[no-untyped-call]
