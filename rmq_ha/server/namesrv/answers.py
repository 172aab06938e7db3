"""Helpers that the name server's processors share."""

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import RemotingCommand

Answer = RemotingCommand | Deferred[RemotingCommand | None] | None
Handler = Callable[[Any, RemotingCommand], Answer]


def required(request: RemotingCommand, name: str) -> str:
    """
    Return a field of a request.

    :raises RequestRejected: the request has no such field.
    """
    value = (request.ext or {}).get(name)
    if value is None:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"the request lacks {name}")
    return value


def when_written(
    request: RemotingCommand,
    written: "Deferred[bool]",
    path: str,
    ext: dict[str, str] | None = None,
) -> "Deferred[RemotingCommand | None]":
    """
    Answer a change once it is on the disk, or cannot get there.

    :param written: fires with whether the file was written.
    :param path: path of the file.
    """

    async def answer(written: Awaitable[bool]) -> RemotingCommand | None:
        if await written:
            return request.response(ext=ext)
        return request.response(
            ResponseCode.SYSTEM_ERROR,
            f"changed in memory, but {path} could not be written: see the name server's log",
        )

    return Deferred.fromCoroutine(answer(written))
