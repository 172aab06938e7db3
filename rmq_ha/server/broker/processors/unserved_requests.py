"""Refuses messages that ask for something that this broker does not do."""

from collections.abc import Mapping

from rmq_ha.base.config.ours import RmqHaConfig
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.properties import decode_properties
from rmq_ha.base.model.unserved_properties import MARKS, UNSERVED, unserved_property
from rmq_ha.base.wire.batch import BatchMember
from rmq_ha.base.wire.codes import ResponseCode

_BYTE_MARKS = tuple(mark.encode() for mark in MARKS)


class UnservedProperties:
    """
    Refuses properties of RocketMQ 5 that no code here looks at.

    :ivar refused: how many messages were refused, by the name of the property.
    """

    def __init__(self, config: RmqHaConfig) -> None:
        self._config = config
        self.refused = dict.fromkeys(UNSERVED, 0)

    def check(self, text: str) -> None:
        """
        Look at the property string of a message, or at the one that all messages of a batch share.

        :raises RequestRejected: the message asks for something that this broker does not do.
        """
        if any(mark in text for mark in MARKS):
            self._check(decode_properties(text), "the message")

    def may_be_in(self, body: bytes) -> bool:
        """Whether members of a batch have to be looked at one by one."""
        return any(mark in body for mark in _BYTE_MARKS)

    def check_members(self, members: list[BatchMember], first: int) -> None:
        """
        Look at messages of a batch.

        :param first: the number of the first of them in the batch.
        :raises RequestRejected: as `check`; the remark has the number of the message.
        """
        for number, (_, _, text) in enumerate(members, first):
            self._check(decode_properties(text), f"message {number} of the batch")

    def _check(self, properties: Mapping[str, str], subject: str) -> None:
        name = unserved_property(properties)
        if name is None or not self._config.refuse_unserved_properties:
            return
        self.refused[name] += 1
        raise RequestRejected(
            ResponseCode.MESSAGE_ILLEGAL,
            f"{subject} asks for {UNSERVED[name]} ({name}), which RocketMQ 5 knows and this broker "
            "does not: consumers would get it at once, as any other message. Leave the property "
            "out, or delay by level (DELAY); refuseUnservedProperties=false at the broker delivers "
            "such messages at once",
        )
