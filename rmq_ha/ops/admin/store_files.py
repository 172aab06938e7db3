"""Steps that all commands on stopped stores share: lock, open, verify, show."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rmq_ha.base.host.files import files_of
from rmq_ha.base.seams import Disk
from rmq_ha.ops.admin.session import Session
from rmq_ha.ops.offline.directory import StoreFiles
from rmq_ha.ops.offline.verify import Finding, VerifyResult, verify

COLUMNS = ("code", "fault", "place", "found", "meaning", "repair")


@contextmanager
def locked(disk: Disk, root: str) -> Iterator[None]:
    """
    Keep the store locked while the block runs, so that no broker opens it.

    :raises StoreLocked: a broker has the store open.
    """
    if not disk.exists(f"{root}/lock"):  # no broker was ever here: create no lock file
        yield
        return
    lock = disk.lock(f"{root}/lock")
    try:
        yield
    finally:
        lock.release()


def opened(root: str, commit_log: str | None = None) -> StoreFiles:
    """
    Open the files of a store.

    :raises CannotDecide: the directory has no commit log.
    """
    files, path = files_of(root)
    store = StoreFiles(root, files, path, commit_log, damaged=True)
    store.log_files()
    return store


def verified(session: Session, root: str, commit_log: str | None) -> VerifyResult:
    """
    Verify a store, with a progress bar.

    :raises CannotDecide: the store cannot be read.
    """
    with session.output.progress("thousand messages", None) as steps:
        return verify(opened(root, commit_log), steps.advance)


def show_findings(session: Session, root: str, report: VerifyResult) -> None:
    """Show a row for each finding, and the number of messages."""
    session.output.table(root, COLUMNS, map(_row, report.findings), messages=report.records)


def _row(item: Finding) -> list[Any]:
    return [item.code, item.is_fault, item.place, item.text, item.meaning, item.mend or None]
