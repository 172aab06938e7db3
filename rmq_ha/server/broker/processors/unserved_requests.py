"""Refuses messages that ask for a feature that this broker does not have."""

from collections.abc import Mapping

from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.properties import decode_properties
from rmq_ha.base.model.unserved_properties import MARKS, TIMERS, UNSERVED, unserved_property
from rmq_ha.base.wire.batch import BatchMember
from rmq_ha.base.wire.codes import ResponseCode

_BYTE_MARKS = tuple(mark.encode() for mark in MARKS)


class UnservedProperties:
    """
    Refuses properties of RocketMQ 5 that this broker does not support.

    :ivar refused: number of refused messages, by the name of the property.
    """

    def __init__(self, config: RmqHaConfig) -> None:
        self._config = config
        self.refused = dict.fromkeys(UNSERVED, 0)

    def check(self, text: str) -> None:
        """
        Check the property string of a message, or the one that all messages of a batch share.

        :raises RequestRejected: the message asks for a feature that this broker does not have.
        """
        if any(mark in text for mark in MARKS):
            self._check(decode_properties(text), "the message")

    def may_be_in(self, body: bytes) -> bool:
        """Return whether the members of a batch must be checked one by one."""
        return any(mark in body for mark in _BYTE_MARKS)

    def check_members(self, members: list[BatchMember], first: int) -> None:
        """
        Check messages of a batch.

        :param first: number in the batch of the first of these messages.
        :raises RequestRejected: see `check`; the remark has the number of the message.
        """
        for number, (_, _, text) in enumerate(members, first):
            self._check(decode_properties(text), f"message {number} of the batch")

    def _check(self, properties: Mapping[str, str], subject: str) -> None:
        config = self._config
        name = unserved_property(properties, serves_timers=config.timer_wheel_enable)
        if name is None or not config.refuse_unserved_properties:
            return
        self.refused[name] += 1
        if name in TIMERS:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                "accurate timer message is not enabled, timerWheelEnable is false: "
                f"{subject} asks for {UNSERVED[name]} ({name}). Set timerWheelEnable=true at the "
                "broker, or delay by level (DELAY); refuseUnservedProperties=false at the broker "
                "delivers such messages at once",
            )
        raise RequestRejected(
            ResponseCode.MESSAGE_ILLEGAL,
            f"{subject} asks for {UNSERVED[name]} ({name}), which RocketMQ 5 knows and this broker "
            "does not: consumers would get it as any other message. Leave the property out; "
            "refuseUnservedProperties=false at the broker stores such messages as any other",
        )
