"""Every exception of rmq-ha.

What a client may see is a status or a response code; these are for the cases that end a connection,
a start or an operation.
"""


class RmqHaError(Exception):
    """
    Base of everything that rmq-ha raises on purpose.

    :ivar retriable: the same call may succeed later, though nobody changes anything; what failed
        may have happened nevertheless.
    """

    retriable = False


class ConfigurationError(RmqHaError):
    """A setting does not fit; the message names file, line, key and reason. The start stops."""


class WrongUsage(Exception):
    """A job was asked in a way that makes no sense: exit code 2; says what to write instead."""


class CannotDecide(Exception):
    """
    An input of a job is missing, unreadable or moving: exit code 3; says which, and what to do.
    """


class PluginNotFound(ConfigurationError):
    """A configured plugin name is not installed (or is installed twice)."""


class ProtocolViolation(RmqHaError):
    """A peer sent bytes that its protocol does not allow; the shell closes the connection."""


class ReplicationError(RmqHaError):
    """The other end of a replication connection broke its rules; the shell closes it."""


class SlaveSilent(ReplicationError):
    """
    A slave reported nothing for so long that it counts as gone.

    :param seconds: since its last report.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the slave said nothing for {seconds:.0f} s: look at it, and at what lies between: "
            "does it hang, does a firewall drop?"
        )


class DivergedLog(ReplicationError):
    """The two commit logs do not continue each other."""


class DivergedTail(DivergedLog):
    """
    The slave's log holds something that the master's does not; what lies before it is common.

    :param end: physical offset at which the common part ends; a record begins there.
    """

    def __init__(self, end: int, message: str) -> None:
        super().__init__(message)
        self.end = end


class NothingInCommon(DivergedLog):
    """
    No whole record was found to be equal, so where the logs part is not known.

    :param start: physical offset from which on they were compared.
    """

    def __init__(self, start: int, message: str) -> None:
        super().__init__(message)
        self.start = start


class StrandedLog(DivergedLog):
    """
    The master has deleted what follows on the slave's log.

    :param end: where the slave's log ends.
    :param begins: where the master's first file begins, which is behind that.
    :param length: bytes that the master's log has from there on, as far as it says.
    """

    def __init__(self, end: int, begins: int, length: int) -> None:
        super().__init__(
            f"our log ends at {end}, and the master's first file begins at {begins}: it has "
            "deleted the messages in between, as this slave was away for longer than the master "
            "keeps messages (fileReservedTime) or has room for"
        )
        self.end = end
        self.begins = begins
        self.length = length


class DamagedMaster(DivergedLog):
    """Where the two logs differ, what the master sends is no record."""


class UnreadableLog(ReplicationError):
    """A slave's own log holds bytes that can never become a record."""


class AheadOfMaster(ReplicationError):
    """
    A slave claims bytes that the master does not have.

    :param end: of the master's log.
    """

    def __init__(self, end: int, message: str) -> None:
        super().__init__(message)
        self.end = end


class RequestRejected(RmqHaError):
    """
    A request that is answered with a response code other than success.

    :param code: the response code.
    :param remark: what the person who reads it should know and do.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class AccessRefused(RequestRejected):
    """
    A request that may not be made.

    :param reason: what only this server's log says of it; None: the remark says all.
    :param kind: for a metric, one of `rmq_ha.base.acl.refusals.RefusalReason`.
    """

    def __init__(
        self, code: int, remark: str, reason: str | None = None, kind: str = "permission"
    ) -> None:
        super().__init__(code, remark)
        self.reason = reason or remark
        self.kind = kind


class StoreError(RmqHaError):
    """The store cannot go on: message says which file and why."""


class NotNow(StoreError):
    """The disk has no descriptors or no memory for it: nothing was done, and it may work later."""


class StoreLocked(StoreError):
    """Another process has this store open."""


class CorruptRecord(StoreError):
    """Bytes that should be a record, a unit or a header are not one."""


class LedgerFull(StoreError):
    """The ledger takes no more entries: the disk is full, or nearly."""


class InconsistentLedger(StoreError):
    """
    An entry that does not continue the ledger; nothing was written.

    :param code: the DLedger response code that says why.
    :param reason: for the person who reads the log.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class RemotingError(RmqHaError):
    """A call to a peer got no response."""


class RemotingTimeout(RemotingError):
    """No response within the time allowed."""

    retriable = True


class RemotingConnectError(RemotingError):
    """
    No connection to the address, or it was lost with the call outstanding.

    :ivar retriable: not where an end refuses the other's TLS: that waits for somebody to change it.
    """

    def __init__(self, reason: str, *, retriable: bool = True) -> None:
        super().__init__(reason)
        self.retriable = retriable


class InvalidSelector(RmqHaError):
    """
    A subscription's expression that does not compile.

    :param reason: for the person who wrote it.
    :param position: of the character where it shows, from 1; 0 where there is none.
    """

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(f"{reason}, at character {position}" if position else reason)
        self.position = position


class TlsRefused(RmqHaError):
    """
    A TLS connection is of no use: the message says what is wrong with the other end.

    :ivar retriable: it went, or was silent, as an end does that is being restarted.
    """

    def __init__(self, reason: str, *, retriable: bool = False) -> None:
        super().__init__(reason)
        self.retriable = retriable


def may_pass(lost: BaseException | None) -> bool:
    """Whether a connection that ended so may be had again though nobody changes anything."""
    return not isinstance(lost, TlsRefused) or lost.retriable
