"""The archive of a support bundle: bounded texts without secrets, and a list of the gaps."""

import io
import tarfile
from typing import Any, NamedTuple

from rmq_ha.base.wire import fastjson
from rmq_ha.ops.admin.redaction import Redactor


class BundleLimits(NamedTuple):
    """
    Most bytes of one file of a bundle, and of all together, before compression.
    """

    file: int = 4 << 20
    total: int = 64 << 20


_LIMITS = BundleLimits()


class BundleGap(NamedTuple):
    """
    A part that the bundle lacks.

    :ivar part: the server, file or answer.
    :ivar why: why it is missing.
    """

    part: str
    why: str


class BundleArchive:
    """
    Gathers the files of a bundle. Secrets are removed at the end, when all of them are known.

    :param now_ms: the time of all files, ms since the epoch.
    :ivar gaps: the parts that could not be had, or have no room.
    """

    def __init__(
        self, name: str, redactor: Redactor, now_ms: int, limits: BundleLimits = _LIMITS
    ) -> None:
        self.gaps: list[BundleGap] = []
        self._name = name
        self._redactor = redactor
        self._now_ms = now_ms
        self._limits = limits
        self._files: dict[str, str] = {}
        self._size = 0

    def add_text(self, path: str, text: str, *, keeps_end: bool = False) -> None:
        """
        Add a file. A longer text is cut, which is a gap.

        :param keeps_end: cut the beginning, as of a log, instead of the end.
        """
        most = min(self._limits.file, self._limits.total - self._size)
        data = text.encode("utf-8", "replace")
        if most <= 0:
            self.gaps.append(BundleGap(path, f"the bundle has {self._limits.total} bytes already"))
            return
        if len(data) > most:
            which = "last" if keeps_end else "first"
            self.gaps.append(BundleGap(path, f"only the {which} {most} of {len(data)} bytes"))
            data = data[-most:] if keeps_end else data[:most]
        self._size += len(data)
        self._files[path] = data.decode("utf-8", "ignore")

    def add_json(self, path: str, value: Any) -> None:
        """Add a value as JSON."""
        self.add_text(path, fastjson.pretty(value).decode("utf-8", "replace"))

    @property
    def paths(self) -> list[str]:
        return sorted(self._files)

    def packed(self, readme: str) -> bytes:
        """
        Return the archive (tar, gzip).

        :param readme: text of the file README.txt; the list of gaps follows it.
        """
        gaps = [f"  {gap.part}: {gap.why}" for gap in self.gaps] or ["  nothing"]
        names = [f"  {path}" for path in self.paths]
        lines = [readme, "", "Missing:", *gaps, "", "Files:", *names, ""]
        files = {"README.txt": "\n".join(lines), **dict(sorted(self._files.items()))}
        target = io.BytesIO()
        with tarfile.open(fileobj=target, mode="w:gz") as archive:
            for path, text in files.items():
                data = self._redactor.text(text).encode("utf-8", "replace")
                entry = tarfile.TarInfo(f"{self._name}/{path}")
                entry.size, entry.mode, entry.mtime = len(data), 0o600, self._now_ms // 1000
                archive.addfile(entry, io.BytesIO(data))
        return target.getvalue()
