"""Every exception of rmq-ha.

Clients see a status or a response code. The exceptions are for cases that end a connection, a start
or an operation.
"""


class RmqHaError(Exception):
    """
    Base class of the exceptions that rmq-ha raises on purpose.

    :ivar retriable: whether the same call may succeed later without any change. The failed call may
        have had its effect nevertheless.
    """

    retriable = False


class ConfigurationError(RmqHaError):
    """A setting is not valid; the message names file, line, key and reason. The start ends."""


class WrongUsage(Exception):
    """A job has wrong arguments; the message says how to write them. Exit code 2."""


class CannotDecide(Exception):
    """
    An input of a job is missing, unreadable or changing; the message names it and the next step.
    Exit code 3.
    """


class PluginNotFound(ConfigurationError):
    """A configured plugin name is not installed (or is installed twice)."""


class ProtocolViolation(RmqHaError):
    """A peer sent bytes that its protocol does not allow. The owner of the connection closes it."""


class ReplicationError(RmqHaError):
    """The other end broke a rule of replication, so this end closes the connection."""


class SlaveSilent(ReplicationError):
    """
    A slave reported nothing for so long that it counts as gone.

    :param seconds: the time since the slave's last report.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the slave said nothing for {seconds:.0f} s: look at the slave and at the "
            "network: does "
            "the slave hang, does a firewall drop packets?"
        )


class DivergedLog(ReplicationError):
    """The master's commit log does not continue the slave's, so the slave cannot follow."""


class DivergedTail(DivergedLog):
    """
    The end of the slave's log differs from the master's log; the part before it is common.

    :param end: physical offset at which the common part ends; a record begins there.
    """

    def __init__(self, end: int, message: str) -> None:
        super().__init__(message)
        self.end = end


class NothingInCommon(DivergedLog):
    """
    No whole record of both logs was found to be equal, so the end of a common part is not known.

    :param start: physical offset from which on the logs were compared.
    """

    def __init__(self, start: int, message: str) -> None:
        super().__init__(message)
        self.start = start


class StrandedLog(DivergedLog):
    """
    The master has deleted the messages that would follow the end of the slave's log.

    :param end: physical offset at which the slave's log ends.
    :param begins: physical offset at which the master's first file begins; larger than `end`.
    :param length: bytes of the master's log from `begins` on, as far as the master says.
    """

    def __init__(self, end: int, begins: int, length: int) -> None:
        super().__init__(
            f"this slave's log ends at {end}, and the master's first file begins at {begins}: the "
            "master has deleted the messages in between, as the slave was away for longer than it "
            "keeps messages (fileReservedTime) or has room for them"
        )
        self.end = end
        self.begins = begins
        self.length = length


class DamagedMaster(DivergedLog):
    """Where the two logs differ, the bytes that the master sends are no record."""


class UnreadableLog(ReplicationError):
    """A slave's own log holds bytes that can never become a record."""


class AheadOfMaster(ReplicationError):
    """
    A slave reports more bytes of the log than the master has.

    :param end: physical offset at which the master's log ends.
    """

    def __init__(self, end: int, message: str) -> None:
        super().__init__(message)
        self.end = end


class RequestRejected(RmqHaError):
    """
    A request that is answered with a response code other than success.

    :param code: the response code.
    :param remark: the reason and the next step, for the person who reads it.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class AccessRefused(RequestRejected):
    """
    A request that its account or address may not make.

    :param reason: a reason for this server's log only; None if the remark says it already.
    :param kind: the reason for a metric, one of `rmq_ha.base.acl.refusals.RefusalReason`.
    """

    def __init__(
        self, code: int, remark: str, reason: str | None = None, kind: str = "permission"
    ) -> None:
        super().__init__(code, remark)
        self.reason = reason or remark
        self.kind = kind


class StoreError(RmqHaError):
    """The store cannot go on; the message says which file and why."""


class NotNow(StoreError):
    """The system lacks descriptors or memory. Nothing was done, and the call may succeed later."""


class StoreLocked(StoreError):
    """Another process has this store open."""


class CorruptRecord(StoreError):
    """Bytes that should be a record, a unit or a header are not one."""


class LedgerFull(StoreError):
    """The ledger takes no more entries: the disk is full, or nearly."""


class InconsistentLedger(StoreError):
    """
    An entry does not continue the ledger; nothing was written.

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
    No connection to the address could be made, or it was lost before the response.

    :ivar retriable: False if an end refuses the other's TLS, which needs a change of settings.
    """

    def __init__(self, reason: str, *, retriable: bool = True) -> None:
        super().__init__(reason)
        self.retriable = retriable


class InvalidSelector(RmqHaError):
    """
    A subscription's expression does not compile.

    :param reason: for the person who wrote it.
    :param position: the position of the wrong character, from 1; 0 if no character is at fault.
    """

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(f"{reason}, at character {position}" if position else reason)
        self.position = position


class TlsRefused(RmqHaError):
    """
    A TLS connection cannot be used; the message says what is wrong with the other end.

    :ivar retriable: whether the other end closed or was silent, as during a restart.
    """

    def __init__(self, reason: str, *, retriable: bool = False) -> None:
        super().__init__(reason)
        self.retriable = retriable


def may_pass(lost: BaseException | None) -> bool:
    """
    Whether a new connection may succeed without any change, after a connection ended with this
    error.
    """
    return not isinstance(lost, TlsRefused) or lost.retriable
