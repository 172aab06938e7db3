"""Deletes expired files of the log, also files that have not expired if the disk is too full, and
refuses puts while the disk is full.

Spec: store.md, section 9.
"""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.seams import Disk, Host
from rmq_ha.base.store_flags import Flag, RunningFlags
from rmq_ha.server.store.log.files import FileRow

FORCE_RATIO = 0.85
FULL_RATIO = 0.90
_MANUAL_ROUNDS = 20
_FILES_A_ROUND = 10
_HOUR_MS = 3_600_000


def disk_ratio(disk: Disk, path: str) -> float:
    """
    Return the used part of the partition, 0 to 1 in whole percents rounded up; -1 if the path does
    not exist.
    """
    usage = disk.usage(path)
    if usage is None:
        return -1.0
    available = usage.used + usage.usable
    return -(-100 * usage.used // available) / 100 if available else 1.0


class Cleanable(Protocol):
    """The methods of a log that its cleaner calls."""

    @property
    def row(self) -> FileRow: ...

    @property
    def may_resume(self) -> bool:
        """Whether the log refuses writes for a reason that may have passed."""

    @property
    def max_offset(self) -> int:
        """Physical offset of the end of the readable log."""

    @property
    def flushed_offset(self) -> int:
        """Physical offset up to which the log is on the disk."""

    def resume(self) -> None:
        """Take writes again, if the disk accepts them."""

    def drop_oldest(self, count: int) -> list[str]:
        """Remove the oldest files from the log; return their paths, to be deleted in this order."""


class CleaningLimits(NamedTuple):
    """
    Limits of the cleaner that do not come from the store's configuration.

    :ivar full_ratio: the used part of the disk, 0 to 1, above which puts are refused.
    :ivar force_ratio: the used part above which files are deleted before they expire.
    :ivar extra_hours: how long files are kept beyond `fileReservedTime`, in hours.
    """

    full_ratio: float = FULL_RATIO
    force_ratio: float = FORCE_RATIO
    extra_hours: int = 0

    @classmethod
    def from_config(cls, own: RmqHaConfig, extra_hours: int = 0) -> "CleaningLimits":
        """Return the limits that rmq-ha's own keys set; they give both ratios in percent."""
        return cls(
            own.disk_space_warning_level_ratio / 100,
            own.disk_space_clean_forcibly_ratio / 100,
            extra_hours,
        )


class LogCleaner:
    """
    Deletes commit log files that are expired, or earlier when the disk fills up.

    :param log: the commit log; of its directories the least used one counts.
    :param queue_path: directory of the consume queues.
    :ivar forced_deletions: number of files that were deleted before they expired.
    :ivar releases: is asked with a physical offset before files below it are deleted; False keeps
        them for now, because timer messages wait there.
    """

    log = Logger()

    def __init__(
        self,
        host: Host,
        configuration: MessageStoreConfig,
        log: Cleanable,
        queue_path: str,
        flags: RunningFlags,
        limits: CleaningLimits,
    ) -> None:
        self._configuration = configuration
        self._disk = host.disk
        self._worker = host.worker
        self._log = log
        self._queue_path = queue_path
        self._flags = flags
        self._now_ms = host.now_ms
        self._limits = limits
        self._manual_rounds = 0
        self.forced_deletions = 0
        self.releases: Callable[[int], bool] = lambda end: True

    def clean_manually(self) -> None:
        """Have the next 20 rounds delete expired files at any hour."""
        self._manual_rounds = _MANUAL_ROUNDS

    def log_ratio(self) -> float:
        """Return how full the least used directory of the commit log is, 0 to 1."""
        return min(disk_ratio(self._disk, path) for path in self._log.row.directories)

    def queue_ratio(self) -> float:
        """Return how full the disk of the consume queues is, 0 to 1."""
        return disk_ratio(self._disk, self._queue_path)

    def check_disk(self) -> None:
        """Refuse puts while the disk is full; take them again when it is not."""
        ratio = self.log_ratio()
        limit = self._limits.full_ratio
        if ratio > limit:
            reason = f"the commit log's disk is {ratio:.0%} full; above {limit:.0%} puts stop"
            if self._flags.hoist(Flag.DISK_FULL, reason):
                self.log.error("disk full: {reason}", reason=reason)
        elif self._flags.lower(Flag.DISK_FULL):
            self.log.info("the disk has room again, {ratio:.0%} used", ratio=ratio)
        if ratio <= limit and self._log.may_resume:
            self._log.resume()

    def clean(self) -> "Deferred[int]":
        """
        Run one round.

        :returns: fires with the number of deleted files; fails if the disk refuses.
        """
        log_ratio, queue_ratio = self.log_ratio(), self.queue_ratio()
        ratio = min(max(self._configuration.disk_max_used_space_ratio, 10), 95) / 100
        too_full = any(not 0 <= ratio_now <= ratio for ratio_now in (log_ratio, queue_ratio))
        is_manual = self._manual_rounds > 0
        if not (self._is_the_hour() or too_full or is_manual):
            return self._worker.call(int)
        if is_manual:
            self._manual_rounds -= 1
        force = (
            self._configuration.clean_file_forcibly_enable
            and (log_ratio > self._limits.force_ratio or queue_ratio > self._limits.force_ratio)
            and self.may_force()
        )
        limit = self._limits.force_ratio
        reason = f"log {log_ratio:.0%}, queues {queue_ratio:.0%}, limit {limit:.0%}"
        count = self._due(force)
        for start in self._log.row.starts[:count]:
            self._tell(start, reason)
        return self._worker.call(self._remove, self._log.drop_oldest(count))

    def may_force(self) -> bool:
        """Return whether files may be deleted before they expire when the disk is too full."""
        return True

    def _tell(self, start: int, reason: str) -> None:
        """Log that a file is deleted, as a warning if it has not expired."""
        row, now = self._log.row, self._now_ms()
        path = row.path(start)
        written = self._disk.mtime_ms(path)
        if now >= written + self._kept_ms():
            self.log.info("deleting {path}", path=path)
            return
        self.forced_deletions += 1
        self.log.warn(
            "deleting {path} before its time, because the disk is too full ({reason}): messages "
            "from {start} to {end} of the log, the last of {hours:.1f} hours ago, are gone; "
            "fileReservedTime asks for {kept} hours: free disk space, or ask for less",
            path=path,
            reason=reason,
            start=start,
            end=start + row.file_size,
            hours=max(0, now - written) / _HOUR_MS,
            kept=self._kept_ms() // _HOUR_MS,
        )

    def _kept_ms(self) -> int:
        return (self._configuration.file_reserved_time + self._limits.extra_hours) * _HOUR_MS

    def _remove(self, paths: list[str]) -> int:
        for path in paths:
            self._disk.remove(path)
        return len(paths)

    def _due(self, force: bool) -> int:
        """
        Return how many of the oldest files may be deleted now, but none that holds the log's end or
        is not flushed.
        """
        now, kept_ms = self._now_ms(), self._kept_ms()
        row = self._log.row
        due = 0
        for start in row.starts[:_FILES_A_ROUND]:
            end = start + row.file_size
            if end > self._log.flushed_offset or end >= self._log.max_offset:
                break
            if not force and now < self._disk.mtime_ms(row.path(start)) + kept_ms:
                break
            if not self.releases(end):
                break
            due += 1
        return due

    def _is_the_hour(self) -> bool:
        hour = datetime.fromtimestamp(self._now_ms() / 1000).hour
        hours = self._configuration.delete_when.split(";")
        return any(part.strip().isdigit() and int(part) == hour for part in hours)
