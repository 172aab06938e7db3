"""The archive's directory, on any file system that Hadoop knows."""

from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from rmq_ha.errors import CannotDecide

_MISSING = "java.io.FileNotFoundException"
_EXISTS = "java.nio.file.FileAlreadyExistsException"
UNFINISHED = ".tmp"
"""How the name of a file ends that is being written."""


class Found(NamedTuple):
    """
    A file.

    :ivar path: below the archive.
    """

    path: str
    size: int


class Files:
    """
    Small files are read and written here, large ones only moved.

    :param root: a path, or the URI of a directory; it need not exist yet.
    :raises CannotDecide: no file system answers to the URI.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        try:
            path = jvm.org.apache.hadoop.fs.Path(root)
            self._fs: Any = path.getFileSystem(spark._jsc.hadoopConfiguration())
            self._root = self._fs.makeQualified(path)
        except Py4JJavaError as error:
            raise CannotDecide(f"{root}: {_reason(error)}") from error
        self.root: str = self._root.toString().rstrip("/")

    def at(self, path: str) -> str:
        """As Spark wants it."""
        return f"{self.root}/{path}"

    def size(self, path: str) -> int | None:
        """Bytes of a file; None: there is none."""
        there = self._path(path)
        return int(self._fs.getFileStatus(there).getLen()) if self._fs.exists(there) else None

    def read(self, path: str) -> str | None:
        """The text of a file; None: there is none."""
        there = self._path(path)
        if not self._fs.exists(there):
            return None
        stream = self._fs.open(there)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def create(self, path: str, text: str, token: str) -> bool:
        """
        Write a file that is there whole or not at all; False: there is one already.

        :param token: of the run; part of the name while it is written.
        """
        if self.size(path) is not None:
            return False
        # Two processes may finish the same run.
        beside = f"{path}.{token}-{self._jvm.java.util.UUID.randomUUID()}{UNFINISHED}"
        stream = self._fs.create(self._path(beside), True)
        try:
            stream.write(text.encode())
            stream.hflush()
        finally:
            stream.close()
        try:
            return self._link(beside, path)
        finally:
            self.delete(beside)

    def _link(self, beside: str, path: str) -> bool:
        """
        Give a file its name, unless another one has it; on a local disk two processes cannot both
        succeed. Elsewhere a rename decides (HDFS refuses it, object stores have none that could).
        """
        if str(self._fs.getUri().getScheme()) != "file":
            return self.size(path) is None and self.move(beside, path)
        nio = self._jvm.java.nio.file
        source, target = (nio.Paths.get(self._path(each).toUri()) for each in (beside, path))
        try:
            nio.Files.createLink(target, source)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() == _EXISTS:
                return False
            return self.size(path) is None and self.move(beside, path)  # a disk without links
        return True

    def move(self, source: str, target: str) -> bool:
        """Give a file another name; directories are made. False: it did not work."""
        there = self._path(target)
        self._fs.mkdirs(there.getParent())
        try:
            return bool(self._fs.rename(self._path(source), there))
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() == _MISSING:
                return False  # another process has moved it
            raise

    def delete(self, path: str) -> None:
        """A file, or a directory with all that is in it; nothing if it is not there."""
        self._fs.delete(self._path(path), True)

    def names(self, path: str) -> list[tuple[str, int]]:
        """Names in a directory, and when they were changed, ms; none if it is not there."""
        there = self._path(path)
        if not self._fs.exists(there):
            return []
        return [
            (str(each.getPath().getName()), int(each.getModificationTime()))
            for each in self._fs.listStatus(there)
        ]

    def below(self, path: str, suffix: str) -> list[Found]:
        """All files below a directory whose name ends so, sorted."""
        there = self._path(path)
        if not self._fs.exists(there):
            return []
        found = []
        each = self._fs.listFiles(there, True)
        while each.hasNext():
            status = each.next()
            full = str(status.getPath().toString())
            if full.endswith(suffix):
                found.append(Found(full[len(self.root) + 1 :], int(status.getLen())))
        return sorted(found)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path)


def _reason(error: Py4JJavaError) -> str:
    return str(error.java_exception.toString())
