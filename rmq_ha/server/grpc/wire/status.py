"""The status codes with which gRPC calls end. RocketMQ's own codes are in its answers."""

from enum import IntEnum

from rmq_ha.base.errors import RmqHaError


class GrpcStatus(IntEnum):
    """The codes of gRPC, as the trailer `grpc-status` carries them."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class GrpcRefusal(RmqHaError):
    """
    Ends a call with a status of gRPC and no further message.

    :param status: not `OK`.
    :param text: a sentence for the client's log.
    """

    def __init__(self, status: GrpcStatus, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
