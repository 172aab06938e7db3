"""RemotingCommand: one request or response.

Spec: remoting.md, sections 1.2 to 1.6.
"""

from dataclasses import dataclass, field
from typing import Any

from rmq_ha.model.security import PLAIN, Security

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2
VERSION = 407  # V4_9_7


@dataclass(slots=True)
class RemotingCommand:
    """
    A decoded frame.

    :ivar code: request code, or response code in a response.
    :ivar ext: the header map, string to string; None when the frame had none.
    :ivar body: None when the frame had none (an empty one cannot be sent).
    :ivar binary: the header is (to be) in ROCKETMQ instead of JSON form.
    :ivar grant: the `IGrant` of the account that signed it, once access control has seen it; None
        for all else. It is never sent.
    :ivar security: of the connection that it came by, where somebody checks access; never sent.
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

    @property
    def is_response(self) -> bool:
        """Answers a request of ours."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Nobody waits for a response."""
        return bool(self.flag & FLAG_ONEWAY)

    def response(
        self,
        code: int = 0,
        remark: str | None = None,
        ext: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> "RemotingCommand":
        """The response to this request, in its own serialisation."""
        return RemotingCommand(
            code=code,
            ext=ext,
            body=body,
            opaque=self.opaque,
            flag=FLAG_RESPONSE,
            remark=remark,
            binary=self.binary,
        )
