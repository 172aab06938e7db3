"""Request and reply: messages that ask, and messages that answer them.

Spec: remoting.md, section 4.8.
"""

from random import Random
from uuid import UUID

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from rmq_ha.base.model.properties import CLUSTER
from rmq_ha.client.rules.errors import IllegalMessage, RequestTimeout
from rmq_ha.client.rules.messages import Message, MessageExt
from rmq_ha.client.send.send import MESSAGE_TYPE, REPLY

CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
_REPLY_TOPIC = "{}_REPLY_TOPIC"


class Requests:
    """Requests that wait for their reply."""

    def __init__(self, clock: IReactorTime, random: Random, client_id: str) -> None:
        self._clock = clock
        self._random = random
        self._client_id = client_id
        self._waiting: dict[str, Deferred[MessageExt]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def open(self, message: Message, timeout_ms: float) -> "tuple[str, Deferred[MessageExt]]":
        """
        Make a request of a message that is about to be sent.

        :returns: the correlation id, and a Deferred that fires with the reply or fails with
            `RequestTimeout`.
        """
        correlation_id = str(UUID(int=self._random.getrandbits(128), version=4))
        message.properties[CORRELATION_ID] = correlation_id
        message.properties[REPLY_TO_CLIENT] = self._client_id
        message.properties[TTL] = str(int(timeout_ms))
        reply: Deferred[MessageExt] = Deferred()
        self._waiting[correlation_id] = reply
        reply.addTimeout(
            timeout_ms / 1000,
            self._clock,
            lambda _, __: _too_late(message.topic, timeout_ms),
        )
        reply.addBoth(self._forget_request, correlation_id)
        return correlation_id, reply

    def resolve(self, reply: MessageExt, correlation_id: str) -> bool:
        """Give a reply to its request; return False if no request waits for it."""
        waiting = self._waiting.get(correlation_id)
        if waiting is None or waiting.called:
            return False
        waiting.callback(reply)
        return True

    def not_sent(self, failure: Failure, correlation_id: str) -> None:
        """Fail a request that could not be sent. Made to be an errback of its send."""
        self.fail(correlation_id, failure)

    def fail(self, correlation_id: str, error: Failure | Exception) -> None:
        """Fail a request that will get no reply."""
        waiting = self._waiting.get(correlation_id)
        if waiting is not None and not waiting.called:
            waiting.errback(error)

    def fail_all(self, error: Exception) -> None:
        """Fail all requests, as the producer stops."""
        for correlation_id in list(self._waiting):
            self.fail(correlation_id, error)

    def _forget_request(self, result: object, correlation_id: str) -> object:
        self._waiting.pop(correlation_id, None)
        return result


def _too_late(topic: str, timeout_ms: float) -> Failure:
    error = RequestTimeout(
        f"no reply from {topic} within {timeout_ms:.0f} ms: does a consumer of it answer, and in"
        " time?"
    )
    return Failure(error)  # type: ignore[no-untyped-call]


def create_reply_message(request: MessageExt, body: bytes) -> Message:
    """
    Make the message that answers a request; send it with any producer.

    :param request: the request, as a consumer got it.
    :raises IllegalMessage: the message is no request.
    """
    cluster = request.properties.get(CLUSTER)
    if not cluster or REPLY_TO_CLIENT not in request.properties:
        raise IllegalMessage(
            f"a message of {request.topic} is no request: it lacks {CLUSTER} or {REPLY_TO_CLIENT}"
        )
    properties = {MESSAGE_TYPE: REPLY}
    for name in (CORRELATION_ID, REPLY_TO_CLIENT, TTL):
        value = request.properties.get(name)
        if value:
            properties[name] = value
    return Message(_REPLY_TOPIC.format(cluster), body, properties=properties)
