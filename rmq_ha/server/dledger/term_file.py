"""The small files beside the ledger: term and vote, the checkpoint, and the group's name.

Spec: dledger.md, section 3.1.
"""

from collections.abc import Callable
from errno import EDQUOT, ENOSPC
from typing import TypeVar

from twisted.logger import Logger

from rmq_ha.base.errors import CorruptRecord, LedgerFull, StoreError
from rmq_ha.base.seams import Disk
from rmq_ha.base.store_format.dledger import (
    DLedgerCheckpoint,
    decode_checkpoint,
    decode_term,
    encode_checkpoint,
    encode_term,
)
from rmq_ha.base.store_format.dledger_values import TermVote

T = TypeVar("T")


class TermFile:
    """
    `currterm`: term and vote, which a member must never forget. It is replaced as a whole and
    synced.

    :param directory: `dledger-<selfId>`.
    """

    log = Logger()

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/currterm"

    def load(self) -> TermVote:
        """
        Read term and vote. Without a sound file, take the newer of the backup and an interrupted
        replacement.

        Upstream deletes the file before it renames the new one: a crash in between leaves only
        `currterm.tmp` and `currterm.bak`.

        :raises StoreError: files exist, but none can be read. A member that started anew could vote
            twice in one term.
        """
        faults: list[str] = []
        current = _load(self._disk, self._path, decode_term, faults)
        if current is not None:
            return current
        left = [
            content
            for content in (
                _load(self._disk, f"{self._path}.bak", decode_term, faults),
                # A torn temporary file does not matter: its vote never left this member.
                _load(self._disk, f"{self._path}.tmp", decode_term, []),
            )
            if content is not None
        ]
        if left:
            newest = max(left, key=lambda state: (state.term, state.voted_for is not None))
            self.log.warn(
                "{path} is missing or damaged: going on with term {term} from what is beside it",
                path=self._path,
                term=newest.term,
            )
            return newest
        if faults:
            raise StoreError(
                f"{'; '.join(faults)}. A member that forgets its vote may vote twice: write the "
                "group's present term plus 1 into it as currTerm=<number>"
            )
        return TermVote()

    def save(self, state: TermVote) -> None:
        """
        Write term and vote to the disk. Blocks, so call it in the worker.

        :raises StoreError: the disk refuses (LedgerFull: it is full); the old content is still
            there.
        """
        _save(self._disk, self._path, encode_term(state))


class CheckpointFile:
    """
    `checkpoint`: the committed index and the last synced entry, as they were a few seconds ago.

    :param directory: `dledger-<selfId>`.
    """

    log = Logger()

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/checkpoint"

    def load(self) -> DLedgerCheckpoint:
        """
        Read the file or its backup. Without both, return defaults: recovery only takes longer.
        """
        faults: list[str] = []
        current = _load(self._disk, self._path, decode_checkpoint, faults)
        if current is not None:
            return current
        backup = _load(self._disk, f"{self._path}.bak", decode_checkpoint, faults)
        for fault in faults:
            self.log.warn("{fault}; it will be written anew", fault=fault)
        # Entries that the backup calls synced may have been cut since.
        return DLedgerCheckpoint() if backup is None else backup._replace(synced=None)

    def save(self, checkpoint: DLedgerCheckpoint) -> None:
        """
        Write the checkpoint to the disk. Blocks, so call it in the worker.

        :raises StoreError: the disk refuses (LedgerFull: it is full); the old content is still
            there.
        """
        _save(self._disk, self._path, encode_checkpoint(checkpoint))


class GroupFile:
    """
    `group`: the name of the group to which this ledger belongs.

    Only rmq-ha has this file, since index and term do not tell one group from another; Java ignores
    it.

    :param directory: `dledger-<selfId>`.
    """

    log = Logger()

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/group"

    def claim(self, group: str, key: str) -> None:
        """
        See that this ledger belongs to the group. A ledger without a name gets the group's name.

        Blocks. A member takes part even if the disk refuses to write the name.

        :param key: configuration key that names the group, for the error message.
        :raises StoreError: the ledger belongs to another group, or the file cannot be read.
        """
        try:
            text = self._disk.read_bytes(self._path).decode(errors="replace").strip()
        except FileNotFoundError:
            self._write(group)
            return
        except OSError as error:
            raise StoreError(f"cannot read whose ledger this is: {error}") from error
        if text != group:
            raise StoreError(
                f"{self._path} says that this ledger is of DLedger group {text!r}, and "
                f"{key}={group} here: is this disk another member's? If the group has another "
                "name now, remove that file"
            )

    def _write(self, group: str) -> None:
        try:
            self._disk.replace(self._path, f"{group}\n".encode())
        except OSError as error:
            self.log.warn("cannot write {path}: {error}", path=self._path, error=error)


def _load(disk: Disk, path: str, decode: Callable[[bytes], T], faults: list[str]) -> T | None:
    """
    Decode a file. Return None if it is missing or unusable; `faults` gets the reason of the latter.
    """
    try:
        return decode(disk.read_bytes(path))
    except FileNotFoundError:
        return None
    except (OSError, CorruptRecord) as error:
        faults.append(f"{path}: {error}")
        return None


def _save(disk: Disk, path: str, data: bytes) -> None:
    try:
        disk.replace(path, data, backup=True)
    except OSError as error:
        raise disk_error(f"cannot write {path}", error) from error


def disk_error(what: str, error: OSError) -> StoreError:
    """Return the exception for a call that the disk refused."""
    is_full = error.errno in (ENOSPC, EDQUOT)
    return (LedgerFull if is_full else StoreError)(f"{what}: {error}")
