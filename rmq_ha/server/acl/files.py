"""The ACL files of a broker: where they are, and their present content.

Spec: remoting.md, section 10.3.
"""

from typing import NamedTuple

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.seams import Disk
from rmq_ha.server.acl.accounts import AclFile
from rmq_ha.server.acl.edits import Edit, edited
from rmq_ha.server.acl.reading import read_file

DEFAULT_FILE = "plain_acl.yml"
FOLDER = "acl"
_SUFFIXES = (".yml", ".yaml")
_MAX_FILES = 1000
_MAX_DEPTH = 8


class FileStamp(NamedTuple):
    """Time of change and size of a file; if either differs, the file has changed."""

    mtime_ms: int
    size: int


class AclFiles:
    """
    The files, which are read again when they change. If a changed file cannot be used, its last
    good content stays in force.

    The methods block on the disk. Call one at a time.

    :param directory: directory with `plain_acl.yml` and the folder `acl`.
    :ivar faults: the reasons why files cannot be used, by path.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self.directory = directory
        self.default = f"{directory}/{DEFAULT_FILE}"
        self.faults: dict[str, str] = {}
        self._disk = disk
        self._read: dict[str, AclFile] = {}
        self._stamps: dict[str, FileStamp] = {}
        self._versions: dict[str, DataVersion] = {}

    def load(self, now_ms: int) -> None:
        """
        Read all files.

        :raises ConfigurationError: a file cannot be used, or there is none.
        """
        self.refresh(now_ms)
        for fault in self.faults.values():
            raise ConfigurationError(fault)

    def current(self) -> list[AclFile]:
        """
        Return the files in the order of precedence: those of the folder, then the default file.
        """
        return list(self._read.values())

    def versions(self) -> dict[str, DataVersion]:
        """
        Return the version of each file, by path. A file that holds no version has the version that
        it got when it was first read.
        """
        return {path: file.version or self._versions[path] for path, file in self._read.items()}

    def refresh(self, now_ms: int) -> bool:
        """
        Read the files that are new or changed.

        :returns: whether rules or faults have changed.
        """
        before = (self._read, self.faults)
        self.faults = {}
        try:
            stamps = self._look()
        except (OSError, ConfigurationError) as error:
            self.faults[self.directory] = _reason(self.directory, error)
            return before[1] != self.faults
        read = {
            path: file
            for path, stamp in stamps.items()
            if (file := self._read_or_keep(path, stamp, before)) is not None
        }
        if not read:
            read = before[0]
            self.faults.setdefault(self.directory, self._no_file_fault())
        self._stamps = stamps
        for path in read:
            self._versions.setdefault(path, DataVersion(now_ms, 0))
        self._read = read  # last: `versions` may be called while this runs in the worker
        return before != (self._read, self.faults)

    def change(self, path: str, edit: Edit, now_ms: int) -> None:
        """
        Write one file anew.

        :param path: path of the file, which need not exist.
        :raises ConfigurationError: the file cannot be read or written, or would not be valid
            afterwards.
        """
        try:
            data = self._disk.read_bytes(path) if self._disk.exists(path) else b""
            old = read_file(path, data).version or DataVersion()
            new = edited(path, data, edit, DataVersion(now_ms, old.counter + 1))
            read_file(path, new)
            self._disk.replace(path, new)
            self._stamps.pop(path, None)  # two changes may have the same time and size
        except OSError as error:
            raise ConfigurationError(_reason(path, error)) from None
        self.refresh(now_ms)

    def _read_or_keep(
        self, path: str, stamp: FileStamp, before: tuple[dict[str, AclFile], dict[str, str]]
    ) -> AclFile | None:
        known, fault = before[0].get(path), before[1].get(path)
        if self._stamps.get(path) == stamp:
            if fault is not None:
                self.faults[path] = fault
            return known
        try:
            file = read_file(path, self._disk.read_bytes(path))
        except (OSError, ConfigurationError) as error:
            self.faults[path] = _reason(path, error)
            return known
        if file.is_empty and known is not None and not known.is_empty:
            # Perhaps somebody is writing this file at the moment.
            self.faults[path] = f"{path} is empty"
            return known
        return file

    def _look(self) -> dict[str, FileStamp]:
        paths: list[str] = []
        _collect(self._disk, f"{self.directory}/{FOLDER}", paths, _MAX_DEPTH)
        if self._disk.exists(self.default):
            paths.append(self.default)
        stamps = {}
        for path in paths:
            try:
                stamps[path] = FileStamp(self._disk.mtime_ms(path), self._disk.size(path))
            except FileNotFoundError:
                continue  # the file was deleted meanwhile
        return stamps

    def _no_file_fault(self) -> str:
        return (
            f"there is neither {self.default} nor a .yml file in {self.directory}/{FOLDER}: write "
            "one, or set aclDirectory to where they are"
        )


def _reason(path: str, error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or path}: {error.strerror or error}"
    return str(error)


def _collect(disk: Disk, folder: str, paths: list[str], depth: int) -> None:
    for name in disk.list_dir(folder):
        path = f"{folder}/{name}"
        if disk.is_dir(path):
            if depth:
                _collect(disk, path, paths, depth - 1)
        elif name.endswith(_SUFFIXES):
            paths.append(path)
        if len(paths) > _MAX_FILES:
            raise ConfigurationError(f"{folder}: more than {_MAX_FILES} ACL files")
