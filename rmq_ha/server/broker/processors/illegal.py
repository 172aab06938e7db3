"""
Why a message may not be stored: what code 13 says to people.

The store says only that a message is illegal. This module looks at the request again, so that
messages that are stored cost nothing.
"""

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import ProtocolViolation, RequestRejected
from rmq_ha.base.model.properties import (
    CLUSTER,
    DELAY,
    MAX_PROPERTIES_SIZE,
    SENT_BY,
    decode_properties,
    encode_properties,
)
from rmq_ha.base.store_format.delay_levels import parse_delay_level
from rmq_ha.base.wire.batch import read_batch
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.send_header import SendHeader, decode_send_header
from rmq_ha.server.broker.duplicates import sender_of

_MEMBER_OVERHEAD = 22


def why_illegal(request: RemotingCommand, configuration: BrokerConfiguration) -> str:
    """
    The cause in words.

    :param request: a send whose message or batch was not stored. A request without header fields
        stands for one of many that came together: the cause is then its size.
    """
    most = configuration.store.max_message_size
    too_large = (
        f"its body may have {most} bytes (maxMessageSize), and the whole message has to fit into a "
        f"file of the commit log ({configuration.store.mapped_file_size_commit_log} bytes)"
    )
    if not request.ext:
        return f"the message is too large: {too_large}"
    try:
        header, body = decode_send_header(request), request.body or b""
    except RequestRejected as rejected:
        return rejected.remark
    cluster = f"{CLUSTER}\x01{configuration.broker.broker_cluster_name}"
    if configuration.ours.duplicate_window_millis and configuration.ours.acl_plug_in:
        cluster += f"\x02{SENT_BY}\x01{sender_of('anybody')}"  # all are as long
    if header.batch:
        return _why_batch(header, body, cluster, most) or f"the batch is too large: {too_large}"
    reason = _why(header.properties, body, cluster, most)
    return f"the message is illegal: {reason or too_large}"


def _why_batch(header: SendHeader, body: bytes, cluster: str, most: int) -> str | None:
    common = encode_properties(decode_properties(header.properties)) + "\x02" + cluster
    total = 0
    try:
        for number, (_, member_body, text) in enumerate(read_batch(body)):
            reason = _why(text, member_body, common, most)
            if reason is None and DELAY in decode_properties(f"{text}\x02{common}"):
                reason = f"it has a delay level ({DELAY}), and messages of a batch may have none"
            if reason is not None:
                return f"message {number} of the batch is illegal: {reason}"
            total += _MEMBER_OVERHEAD + len(member_body)
    except ProtocolViolation as violation:
        return str(violation)
    if total > most:
        return f"the messages of the batch have {total} bytes; {most} are allowed (maxMessageSize)"
    return None


def _why(text: str, body: bytes, added: str, most: int) -> str | None:
    """:param added: the properties that the broker puts behind those of the message."""
    properties = decode_properties(text)
    level = properties.get(DELAY)
    if level and parse_delay_level(level) is None:
        return f"its {DELAY} is {level[:40]!r}, and a delay level is a whole number"
    size = len(encode_properties(properties).encode("utf-8", "replace")) + 1 + len(added.encode())
    if size > MAX_PROPERTIES_SIZE:
        return (
            f"its properties have {size} bytes with those that the broker adds; "
            f"{MAX_PROPERTIES_SIZE} are allowed"
        )
    if len(body) > most:
        return f"its body has {len(body)} bytes; {most} are allowed (maxMessageSize)"
    return None
