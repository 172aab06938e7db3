"""RemotingCommand: one request or response.

Spec: remoting.md, sections 1.2 to 1.6.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rmq_ha.base.errors import ProtocolViolation, RequestRejected
from rmq_ha.base.model.security import PLAIN, Security
from rmq_ha.base.wire.codes import ResponseCode

T = TypeVar("T")

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2
VERSION = 407  # V4_9_7


@dataclass(slots=True)
class RemotingCommand:
    """
    One request or response: a decoded frame.

    :ivar code: the request code; in a response the response code.
    :ivar ext: the header's map of texts; None when the frame had none.
    :ivar body: None when the frame had none. An empty body cannot be sent.
    :ivar binary: whether the header has the ROCKETMQ form instead of JSON.
    :ivar grant: the `IGrant` of the account that signed the request, set by access control; else
        None. It is never sent.
    :ivar security: facts about the connection that the request came by, for access control. They
        are never sent.
    """

    code: int
    ext: dict[str, str] | None = None
    body: bytes | None = None
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    language: str | None = "JAVA"
    version: int = VERSION
    binary: bool = False
    grant: Any = field(default=None, compare=False, repr=False)
    security: Security = field(default=PLAIN, compare=False, repr=False)
    _decoded: Any = field(default=None, init=False, compare=False, repr=False)

    @property
    def reason(self) -> str:
        """The remark for people, also where the peer gave none."""
        return self.remark or "the peer gives no reason"

    @property
    def is_response(self) -> bool:
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & FLAG_ONEWAY)

    def read(self, decode: Callable[[bytes], T]) -> T:
        """
        Return the body as `decode` reads it.

        The result is kept: access control and the processor see the same value, and it is read
        once.

        :param decode: raises `ProtocolViolation` for a body that does not fit.
        :raises RequestRejected: there is no body, or it does not fit.
        """
        if self._decoded is None or self._decoded[0] != decode:
            if self.body is None:
                raise RequestRejected(
                    ResponseCode.SYSTEM_ERROR, f"request {self.code} needs a body and has none"
                )
            try:
                self._decoded = decode, decode(self.body)
            except ProtocolViolation as error:
                raise RequestRejected(
                    ResponseCode.SYSTEM_ERROR, f"the body of request {self.code}: {error}"
                ) from None
        value: T = self._decoded[1]
        return value

    def response(
        self,
        code: int = 0,
        remark: str | None = None,
        ext: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> "RemotingCommand":
        """Return the response to this request, with a header of the same form."""
        return RemotingCommand(
            code=code,
            ext=ext,
            body=body,
            opaque=self.opaque,
            flag=FLAG_RESPONSE,
            remark=remark,
            binary=self.binary,
        )
