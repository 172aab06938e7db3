"""The stretches of its damaged log that a slave set aside, until its master has sent them again.

Spec: store.md, sections 5.4 and 5.6.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from twisted.logger import Logger

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.seams import Disk
from rmq_ha.base.wire import fastjson
from rmq_ha.server.store.log.setaside import ABOUT, FOLDER


class RefetchStretch(NamedTuple):
    """
    A stretch of the log that a slave gave up in order to fetch it again.

    :ivar path: path of the `about.json` beside its bytes.
    :ivar end: physical offset after its last byte.
    :ivar about: the content of that file.
    """

    path: str
    end: int
    about: dict[str, Any]


class RefetchLog:
    """
    The stretches that a store still has to fetch again, found by the folders in which they are
    kept.

    The mark is in the folder. So it is on the disk before the log is cut, and it disappears when an
    operator removes the folder.

    :param root: the store's root directory.
    """

    log = Logger()

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._folder = f"{root}/{FOLDER}"

    def open(self) -> Iterator[RefetchStretch]:
        """
        Yield the stretches that no start has found in the log again.

        :raises OSError: the disk refuses.
        """
        for name in self._disk.list_dir(self._folder):
            path = f"{self._folder}/{name}/{ABOUT}"
            if not self._disk.exists(path):
                continue
            try:
                about = fastjson.parse(self._disk.read_bytes(path))
                if about.get("owed"):
                    yield RefetchStretch(path, about["to"], about)
            except (ProtocolViolation, AttributeError, KeyError) as error:
                self.log.warn(
                    "{path} does not say what is kept there: {error}", path=path, error=error
                )

    def close(self, owed: RefetchStretch) -> None:
        """
        Mark a stretch as fetched again or given up.

        If the disk refuses, the next start tries it again.
        """
        try:
            self._disk.replace(owed.path, fastjson.pretty({**owed.about, "owed": False}))
        except OSError as error:
            self.log.warn("cannot note in {path}: {error}", path=owed.path, error=error)

    def give_up(self) -> None:
        """Mark all stretches as given up: the log is cut because the master has another log."""
        for owed in list(self.open()):
            self.close(owed)
