"""Makes the outcomes of sends, with the reason why a message cannot be stored.

The store says only that a message is illegal. `_why_illegal` then reads the message again, so that
stored messages cost nothing more.

Spec: remoting.md, section 4.2; store.md, section 2.7.
"""

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.message import AppendResult
from rmq_ha.base.model.properties import (
    CLUSTER,
    DELAY,
    MAX_PROPERTIES_SIZE,
    SENT_BY,
    decode_properties,
    encode_properties,
)
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.store_format.delay_levels import parse_delay_level
from rmq_ha.base.wire.batch import MEMBER_OVERHEAD, read_batch
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.duplicates import DUPLICATE
from rmq_ha.base.wire.send_header import SendHeader
from rmq_ha.server.broker.duplicates import sender_of
from rmq_ha.server.door import SendOutcome
from rmq_ha.server.store.message_store import DefaultMessageStore

CODES = {
    PutMessageStatus.PUT_OK: ResponseCode.SUCCESS,
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
}


def code_of(status: PutMessageStatus) -> int:
    """Return the response code for the status of a put."""
    return CODES.get(status, ResponseCode.SYSTEM_ERROR)


class SendAnswers:
    """Makes outcomes of sends, with the two trace fields that Java's producer requires."""

    def __init__(
        self,
        configuration: BrokerConfiguration,
        store: DefaultMessageStore,
    ) -> None:
        self._configuration = configuration
        self._store = store

    @property
    def trace_ext(self) -> dict[str, str]:
        """The trace fields of every answer; both settings may change at run time."""
        broker = self._configuration.broker
        return {
            "MSG_REGION": broker.region_id,
            "TRACE_ON": "true" if broker.trace_on else "false",
        }

    def stored(
        self,
        status: PutMessageStatus,
        append: AppendResult,
        queue_id: int,
        *,
        is_known: bool = False,
    ) -> SendOutcome:
        """
        Return the outcome of a stored message.

        :param queue_id: the queue that the producer asked for.
        :param is_known: the message was stored before, and was not stored again.
        """
        ext = {
            **self.trace_ext,
            "msgId": append.msg_id,
            "queueId": str(queue_id),
            "queueOffset": str(append.queue_offset),
        }
        if is_known:
            ext[DUPLICATE] = "true"
        return SendOutcome(CODES[status], None, ext, append)

    def not_stored(
        self, status: PutMessageStatus, header: SendHeader | None, body: bytes
    ) -> SendOutcome:
        """
        Return the outcome of a message that was not stored.

        :param header: None for a message of a run of sends: if the store found it illegal, it was
            too large.
        """
        return SendOutcome(code_of(status), self._remark(status, header, body), self.trace_ext)

    def _why_not(self) -> str:
        """
        Return why the store refuses puts.

        An elected broker has the role of a slave while it does not lead. Then the journal's reason
        helps the reader more than "this is a slave".
        """
        store = self._store
        reason = store.why_not_writable()
        if not reason:
            return self._why_busy()
        return (store.is_open and store.is_slave and store.journal.why_no_puts()) or reason

    def _why_busy(self) -> str:
        """Return why a put was not decided in time, or was not even begun, although puts go on."""
        return self._store.journal.why_not_kept() or "the disk is slow"

    def _remark(self, status: PutMessageStatus, header: SendHeader | None, body: bytes) -> str:
        if code_of(status) == ResponseCode.MESSAGE_ILLEGAL:
            return _why_illegal(header, body, self._configuration)
        remarks = {
            PutMessageStatus.SERVICE_NOT_AVAILABLE: "service not available now: " + self._why_not(),
            PutMessageStatus.CREATE_MAPEDFILE_FAILED: (
                "create mapped file failed, server is busy or broken: " + self._why_not()
            ),
            PutMessageStatus.OS_PAGECACHE_BUSY: (
                "[PC_SYNCHRONIZED]broker busy, start flow control for a while: " + self._why_busy()
            ),
        }
        return remarks.get(status, status.name)


def _why_illegal(header: SendHeader | None, body: bytes, configuration: BrokerConfiguration) -> str:
    """
    Return in words why a message or a batch is illegal.

    :param header: see `SendAnswers.not_stored`.
    """
    most = configuration.store.max_message_size
    too_large = (
        f"its body may have {most} bytes (maxMessageSize), and the whole message has to fit into a "
        f"file of the commit log ({configuration.store.mapped_file_size_commit_log} bytes)"
    )
    if header is None:
        return f"the message is too large: {too_large}"
    cluster = f"{CLUSTER}\x01{configuration.broker.broker_cluster_name}"
    if configuration.ours.duplicate_window_millis and configuration.ours.acl_plug_in:
        cluster += f"\x02{SENT_BY}\x01{sender_of('anybody')}"  # as long as for any account
    if header.batch:
        return _why_batch(header, body, cluster, most) or f"the batch is too large: {too_large}"
    reason = _message_fault(header.properties, body, cluster, most)
    return f"the message is illegal: {reason or too_large}"


def _why_batch(header: SendHeader, body: bytes, cluster: str, most: int) -> str | None:
    """
    Return why a batch is illegal; None if no reason is found.

    :param cluster: the property with the cluster's name, which the broker adds to each message, as
        the log has it: name, 0x01, value; 0x02 parts two properties.
    :param most: `maxMessageSize`.
    """
    # Each message of a batch also gets the properties of the batch itself.
    common = encode_properties(decode_properties(header.properties)) + "\x02" + cluster
    total = 0
    try:
        for number, (_, member_body, text) in enumerate(read_batch(body)):
            reason = _message_fault(text, member_body, common, most)
            if reason is None and DELAY in decode_properties(f"{text}\x02{common}"):
                reason = f"it has a delay level ({DELAY}), and messages of a batch may have none"
            if reason is not None:
                return f"message {number} of the batch is illegal: {reason}"
            total += MEMBER_OVERHEAD + len(member_body)
    except ProtocolViolation as violation:
        return str(violation)
    if total > most:
        return f"the messages of the batch have {total} bytes; {most} are allowed (maxMessageSize)"
    return None


def _message_fault(text: str, body: bytes, added: str, most: int) -> str | None:
    """
    Return why a message is illegal; None if no reason is found.

    :param added: the properties that the broker appends to those of the message.
    """
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
