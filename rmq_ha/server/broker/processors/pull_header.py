"""Reads the header of a pull.

Spec: remoting.md, section 6.1.
"""

from collections.abc import Mapping
from operator import itemgetter

import msgspec

from rmq_ha.base.model.flags import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from rmq_ha.server.broker.processors import fields

_NUMBERS = itemgetter(
    "queueId", "maxMsgNums", "sysFlag", "queueOffset", "commitOffset", "suspendTimeoutMillis",
    "subVersion",
)  # fmt: skip


class PullHeader(msgspec.Struct, frozen=True, gc=False):
    """
    The header fields of a pull.

    :ivar commit_offset: used only if the flags say so, like the next two fields.
    :ivar suspend_ms: how long the pull may wait, ms.
    :ivar sub_version: version of the subscription that the broker must know.
    :ivar subscription: subscription in the request itself; None without one.
    """

    group: str
    topic: str
    queue_id: int
    max_nums: int
    sys_flag: int
    queue_offset: int
    commit_offset: int
    suspend_ms: int
    sub_version: int
    subscription: str | None
    expression_type: str | None


def pull_header(ext: Mapping[str, str]) -> PullHeader:
    """
    Read the header map of a pull.

    :raises RequestRejected: a field that its flags require is missing, or is not a number.
    """
    try:
        texts = _NUMBERS(ext)
        digits = "".join(texts)
        if digits.isascii() and digits.isdigit():
            queue_id, most, flags, offset, commit, suspend_ms, version = map(int, texts)
            if (
                max(queue_id, most, flags) <= fields.INT32_MAX
                and max(offset, commit, suspend_ms, version) <= fields.INT64_MAX
            ):  # nearly all pulls; quicker than field by field
                return PullHeader(
                    ext["consumerGroup"], ext["topic"], queue_id, most, flags, offset, commit,
                    suspend_ms, version, ext.get("subscription"), ext.get("expressionType"),
                )  # fmt: skip
    except (KeyError, ValueError):  # a field is missing or empty
        pass
    group, topic = fields.text(ext, "consumerGroup"), fields.text(ext, "topic")
    queue_id, max_nums = fields.int32(ext, "queueId"), fields.int32(ext, "maxMsgNums")
    flags = fields.int32(ext, "sysFlag")
    return PullHeader(
        group,
        topic,
        queue_id,
        max_nums,
        flags,
        fields.int64(ext, "queueOffset"),
        fields.int64(ext, "commitOffset") if flags & PULL_COMMIT_OFFSET else 0,
        fields.int64(ext, "suspendTimeoutMillis") if flags & PULL_SUSPEND else 0,
        0 if flags & PULL_SUBSCRIPTION else fields.int64(ext, "subVersion"),
        ext.get("subscription"),
        ext.get("expressionType"),
    )
