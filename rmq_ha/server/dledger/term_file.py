"""Term and vote, the checkpoint, and whose ledger it is: the small files beside it.

Spec: dledger.md, section 3.1.
"""

from collections.abc import Callable
from errno import EDQUOT, ENOSPC
from typing import TypeVar

from twisted.logger import Logger

from rmq_ha.base.errors import CorruptRecord, LedgerFull, StoreError
from rmq_ha.base.seams import Disk
from rmq_ha.base.store_format.dledger import (
    Checkpoint,
    decode_checkpoint,
    decode_term,
    encode_checkpoint,
    encode_term,
)
from rmq_ha.base.store_format.dledger_values import TermVote

T = TypeVar("T")


class TermFile:
    """
    `currterm`: what a member must never forget, replaced as a whole and synced.

    :param directory: `dledger-<selfId>`.
    """

    log = Logger()

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/currterm"

    def load(self) -> TermVote:
        """
        The newest of the file, what an interrupted replacement left, and the backup.

        Upstream deletes the file before it renames the new one: a crash in between leaves
        `currterm.tmp` and `currterm.bak` only.

        :raises StoreError: the file, or all that is left of it, cannot be read: starting anew
            could vote twice in one term.
        """
        faults: list[str] = []
        current = _load(self._disk, self._path, decode_term, faults)
        if current is not None:
            return current
        left = [
            content
            for content in (
                _load(self._disk, f"{self._path}.bak", decode_term, faults),
                # A torn one is of no account: its vote never left this member.
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
        Put it on the disk. Blocks: for the worker.

        :raises StoreError: the disk refuses (LedgerFull: is full); the old content is still there.
        """
        _save(self._disk, self._path, encode_term(state))


class CheckpointFile:
    """
    `checkpoint`: the committed index, as of a few seconds ago.

    :param directory: `dledger-<selfId>`.
    """

    log = Logger()

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/checkpoint"

    def load(self) -> Checkpoint:
        """The file, or its backup; defaults without both: nothing is lost but time."""
        faults: list[str] = []
        current = _load(self._disk, self._path, decode_checkpoint, faults)
        if current is not None:
            return current
        backup = _load(self._disk, f"{self._path}.bak", decode_checkpoint, faults)
        for fault in faults:
            self.log.warn("{fault}; it will be written anew", fault=fault)
        # What was synced then may have been cut since.
        return Checkpoint() if backup is None else backup._replace(synced=None)

    def save(self, checkpoint: Checkpoint) -> None:
        """
        Put it on the disk. Blocks: for the worker.

        :raises StoreError: the disk refuses (LedgerFull: is full); the old content is still there.
        """
        _save(self._disk, self._path, encode_checkpoint(checkpoint))


class GroupFile:
    """
    `group`: the name of the group whose ledger this is.

    Ours, as index and term do not tell one group from another; Java ignores it.

    :param directory: `dledger-<selfId>`.
    """

    log = Logger()

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/group"

    def claim(self, group: str, key: str) -> None:
        """
        See that this ledger is of that group; of one that has no name yet it is from now on.

        Blocks. A disk that does not take the name is no reason not to take part.

        :param key: of the configuration, with the name in it.
        :raises StoreError: it is another group's, or the disk does not say.
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
    """What a file says; None without a usable one, and in `faults` why one is not."""
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
    """The exception for a call that the disk refused."""
    is_full = error.errno in (ENOSPC, EDQUOT)
    return (LedgerFull if is_full else StoreError)(f"{what}: {error}")
