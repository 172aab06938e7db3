"""What a slave set aside of its damaged log, until its master has given it anew.

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
    A stretch of the log that a slave gave up to fetch it anew.

    :ivar path: of the `about.json` beside its bytes.
    :ivar end: physical offset behind its last byte.
    :ivar about: all that the file says.
    """

    path: str
    end: int
    about: dict[str, Any]


class RefetchLog:
    """
    The stretches that are owed to a store, by the folders in which they are kept.

    The mark stands in the folder, so that it is on the disk before anything is cut, and gone when
    an operator removes the folder.

    :param root: the store's root directory.
    """

    log = Logger()

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._folder = f"{root}/{FOLDER}"

    def open(self) -> Iterator[RefetchStretch]:
        """
        What no start has seen come back.

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
        """It is there again, or given up. Where the disk refuses, the next start tries again."""
        try:
            self._disk.replace(owed.path, fastjson.pretty({**owed.about, "owed": False}))
        except OSError as error:
            self.log.warn("cannot note in {path}: {error}", path=owed.path, error=error)

    def give_up(self) -> None:
        """The log is cut, as its master has another one: it is there, or nobody will give it."""
        for owed in list(self.open()):
            self.close(owed)
