"""Serves the page over HTTP: its files, and JSON below /api."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import Request
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from rmq_ha.base.model.networks import is_loopback
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.ops.app.page.answers import Answers, BadQuestion, NotThere
from rmq_ha.ops.app.page.files import PageFile
from rmq_ha.ops.app.page.gate import SESSION_S, Gate, NotAllowed
from rmq_ha.ops.app.page.search import SearchRefused
from rmq_ha.ops.app.page.values import ErrorBody, SessionState

_JSON = b"application/json"
_MOST_BODY = 4096
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    b"content-security-policy": _CSP.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}


class Login(msgspec.Struct, frozen=True):
    """
    The body of POST /api/session.

    `account`: an access key; empty: the token signed the challenge.
    """

    challenge: str
    signature: str
    account: str = ""


class PageFiles(Resource):
    """
    Serves the files at /page/...; index.html also at /.

    :param files: the files by name.
    """

    isLeaf = True

    def __init__(self, files: Mapping[str, PageFile]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._files = files

    def render_GET(self, request: Request) -> bytes:
        """Return a file, or 304 if the browser has this version."""
        path = _path(request) or b"index.html"
        file = self._files.get(path.decode("ascii", "replace"))
        guard(request)
        if file is None:
            return _plain(request, HTTPStatus.NOT_FOUND, "there is no such file")
        headers = request.responseHeaders
        headers.setRawHeaders(b"content-type", [file.content_type])
        headers.setRawHeaders(b"cache-control", [b"no-cache"])
        if request.setETag(file.etag):  # type: ignore[no-untyped-call]
            return b""
        return file.data


class Api(Resource):
    """
    Serves everything below /api.

    :param answers: returns the answers; None: the server does not serve yet, or no longer.
    """

    isLeaf = True
    log = Logger()

    def __init__(
        self, gate: Gate, clock: IReactorTime, answers: Callable[[], Answers | None]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._gate = gate
        self._clock = clock
        self._answers = answers
        self._refusals = Refusals(clock)
        self._last_error = ""

    def render_GET(self, request: Request) -> Any:
        guard(request)
        path = _path(request).decode("ascii", "replace")
        refusal = misdirection(self._gate, request)
        if refusal is not None:
            return say_fault(request, HTTPStatus.MISDIRECTED_REQUEST, refusal)
        if path == "session":
            return _say(request, HTTPStatus.OK, self._session(request))
        if not self._is_allowed(request):
            return say_fault(request, HTTPStatus.UNAUTHORIZED, "log in first: /api/session")
        answers = self._answers()
        if answers is None:
            text = "this server is starting or stopping; /healthz says more"
            return say_fault(request, HTTPStatus.SERVICE_UNAVAILABLE, text)
        try:
            answer = answers.answer(path, _arguments(request), _host(request))
        except Exception as error:
            return self._answer_failure(request, error)
        if isinstance(answer, bytes):
            return _raw(request, HTTPStatus.OK, answer)
        return self._answer_later(request, answer)

    def render_POST(self, request: Request) -> bytes:
        """Begin a session, or end one if the object is empty."""
        guard(request)
        if _path(request) != b"session":
            return say_fault(request, HTTPStatus.METHOD_NOT_ALLOWED, "only /api/session takes POST")
        refusal = misdirection(self._gate, request)
        if refusal is not None or not _is_own(request):
            text = refusal or "another site's page sent this"
            return say_fault(request, HTTPStatus.MISDIRECTED_REQUEST, text)
        content = request.content
        body = b"" if content is None else content.read(_MOST_BODY + 1)
        if body == b"{}":
            self._gate.leave(_cookie(request))
            _set_cookie(request, "", 0)
            return _say(request, HTTPStatus.OK, SessionState(False, self._gate.ways))
        try:
            login = login_in(body)
        except ValueError as error:
            return say_fault(request, HTTPStatus.BAD_REQUEST, f"this is no proof: {error}")
        try:
            session = self._gate.enter(
                self._clock.seconds(),
                _host(request),
                login.account,
                login.challenge,
                login.signature,
            )
        except NotAllowed as refused:
            self._tell_refused(request, str(refused))
            return say_fault(request, HTTPStatus.FORBIDDEN, str(refused))
        _set_cookie(request, session, int(SESSION_S))
        return _say(request, HTTPStatus.OK, SessionState(True, who=login.account or "token"))

    def _session(self, request: Request) -> SessionState:
        gate, now = self._gate, self._clock.seconds()
        if gate.is_open:
            return SessionState(True)
        who = gate.account_of(now, _cookie(request))
        if who is not None:
            return SessionState(True, gate.ways, who=who)
        return SessionState(False, gate.ways, gate.challenge(now))

    def _is_allowed(self, request: Request) -> bool:
        gate, now = self._gate, self._clock.seconds()
        if gate.is_open or gate.account_of(now, _cookie(request)) is not None:
            return True
        bearer = (request.getHeader(b"authorization") or b"").decode("utf-8", "replace")
        kind, _, text = bearer.partition(" ")
        if kind.lower() != "bearer":
            return False
        if gate.shows_token(text):
            return True
        self._tell_refused(request, "the token is wrong")
        return False

    def _tell_refused(self, request: Request, why: str) -> None:
        host = _host(request)
        more = self._refusals.admit(host, why)
        if more is not None:
            self.log.warn(
                "{host} may not look at the page: {why}{more}", host=host, why=why, more=more
            )

    def _answer_later(self, request: Request, answer: "Deferred[bytes]") -> int:
        is_gone = False

        def on_end(_: object) -> None:
            nonlocal is_gone
            is_gone = True
            answer.cancel()

        def on_data(data: bytes) -> None:
            if not is_gone:
                _finish(request, _raw(request, HTTPStatus.OK, data))

        def failed(failure: Failure) -> None:
            if is_gone:
                failure.trap(CancelledError)  # type: ignore[no-untyped-call]
                return
            _finish(request, self._answer_failure(request, failure.value))

        request.notifyFinish().addErrback(on_end)
        answer.addCallbacks(on_data, failed)
        answer.addErrback(lambda failure: self.log.failure("an answer was lost", failure))
        return NOT_DONE_YET

    def _answer_failure(self, request: Request, error: Any) -> bytes:
        if isinstance(error, NotThere):
            return say_fault(request, HTTPStatus.NOT_FOUND, str(error))
        if isinstance(error, BadQuestion | SearchRefused):
            return say_fault(request, HTTPStatus.BAD_REQUEST, str(error))
        if repr(error) != self._last_error:
            self.log.failure("the page cannot be told", Failure(error))  # type: ignore[no-untyped-call]
        self._last_error = repr(error)
        text = "the answer cannot be made; the log says why"
        return say_fault(request, HTTPStatus.INTERNAL_SERVER_ERROR, text)


def _path(request: Request) -> bytes:
    return b"/".join(getattr(request, "postpath", ()))


def _finish(request: Request, data: bytes) -> None:
    request.write(data)  # type: ignore[no-untyped-call]
    request.finish()  # type: ignore[no-untyped-call]


def login_in(body: bytes) -> Login:
    """
    Parse the body of POST /api/session.

    :raises ValueError: the body has another form.
    """
    try:
        return msgspec.json.decode(body, type=Login)
    except RecursionError:  # raised for a body that nests too deeply
        raise ValueError("it nests too deeply") from None


def guard(request: Request) -> None:
    """Set the headers that restrict what a browser does with an answer."""
    for name, value in _HEADERS.items():
        request.responseHeaders.setRawHeaders(name, [value])


def misdirection(gate: Gate, request: Request) -> str | None:
    """
    Return why a request is refused for the host name that it used; None: it is answered.

    A web site that a browser of this machine shows may point its own name at 127.0.0.1 and read the
    answers. So where clients need not enter, the name has to be this machine's.
    """
    if gate.is_shut:
        return (
            "other machines reach this port, or an access plugin is in force, so people have to "
            "log in: set pageToken, or aclEnable=true, or metricsAddress=127.0.0.1 "
            "(docs/operations.md)"
        )
    name = name_asked(request)
    if gate.is_open and name != "localhost" and not is_loopback(name):
        return f"the page is at http://127.0.0.1/, not at {name[:100]}: see pageToken"
    return None


def name_asked(request: Request) -> str:
    """Return the host name or address, without the port, that a request was sent to."""
    host = request.getRequestHostname()  # type: ignore[no-untyped-call]
    return (host or b"").decode("ascii", "replace").strip("[]")


def say_fault(request: Request, status: HTTPStatus, text: str) -> bytes:
    return _say(request, status, ErrorBody(text))


def _say(request: Request, status: HTTPStatus, value: msgspec.Struct) -> bytes:
    return _raw(request, status, msgspec.json.encode(value))


def _raw(request: Request, status: HTTPStatus, data: bytes) -> bytes:
    request.setResponseCode(int(status))
    headers = request.responseHeaders
    headers.setRawHeaders(b"content-type", [_JSON])
    headers.setRawHeaders(b"cache-control", [b"no-store"])
    return data


def _plain(request: Request, status: HTTPStatus, text: str) -> bytes:
    request.setResponseCode(int(status))
    request.responseHeaders.setRawHeaders(b"content-type", [b"text/plain; charset=utf-8"])
    return f"{text}\n".encode()


def _host(request: Request) -> str:
    address = request.getClientAddress()  # type: ignore[no-untyped-call]
    return str(getattr(address, "host", ""))


def _arguments(request: Request) -> dict[str, str]:
    """
    Return the last value of each argument; bytes that are not UTF-8 are replaced, so that they
    match nothing.
    """
    return {
        name.decode("utf-8", "replace"): values[-1].decode("utf-8", "replace")
        for name, values in (request.args or {}).items()
    }


def _cookie_name(request: Request) -> bytes:
    """
    Return the session cookie's name for this port: browsers share cookies among all ports of a
    host, and another server may use another port.
    """
    address = request.getHost()  # type: ignore[no-untyped-call]
    return b"rmqha-%d" % getattr(address, "port", 0)


def _cookie(request: Request) -> str:
    value = request.getCookie(_cookie_name(request))  # type: ignore[no-untyped-call]
    return (value or b"").decode("ascii", "replace")


def _set_cookie(request: Request, value: str, age: int) -> None:
    request.addCookie(  # type: ignore[no-untyped-call]
        _cookie_name(request),
        value,
        path="/api",
        max_age=str(age),
        httpOnly=True,
        sameSite="strict",
    )


def _is_own(request: Request) -> bool:
    """
    Return whether a form was sent by this server's own page, as the browser's Origin header says.
    """
    origin = request.getHeader(b"origin")
    host = request.getHeader(b"host")
    if origin is None or host is None:
        return True
    return origin.partition(b"://")[2] == host
