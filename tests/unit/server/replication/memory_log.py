"""A commit log in memory, for tests of whoever reads and appends one."""

from rmq_ha.base.errors import DivergedLog


class MemoryLog:
    """
    A `CopiedLog` of one bytearray.

    :param start: offset of the first file; None: an empty log.
    """

    def __init__(self, file_size: int = 4096, start: int | None = None, data: bytes = b"") -> None:
        self.file_size = file_size
        self.min_offset = -1 if start is None else start
        self.data = bytearray(data)
        self.base = start or 0
        self.appends: list[tuple[int, int]] = []

    @property
    def max_offset(self) -> int:
        return self.base + len(self.data)

    flushed_offset = max_offset

    def put(self, data: bytes) -> int:
        """What a master's store does; no blanks."""
        if self.min_offset < 0:
            self.min_offset = 0
        self.data += data
        return self.max_offset

    def delete_below(self, offset: int) -> None:
        """Files expired."""
        del self.data[: offset - self.base]
        self.base = self.min_offset = offset

    def read(self, physical_offset: int, limit: int) -> bytes:
        if not self.base <= physical_offset < self.max_offset:
            return b""
        limit = min(limit, self.file_size - physical_offset % self.file_size)
        position = physical_offset - self.base
        return bytes(memoryview(self.data)[position : position + limit])

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None:
        if self.min_offset < 0:
            self.base = self.min_offset = physical_offset - physical_offset % self.file_size
            if not data:
                return
        if physical_offset != self.max_offset:
            raise DivergedLog(f"append at {physical_offset}, end {self.max_offset}")
        if physical_offset % self.file_size + len(data) > self.file_size:
            raise DivergedLog(f"{len(data)} bytes at {physical_offset} cross the end of a file")
        if not data:
            return
        self.appends.append((physical_offset, len(data)))
        self.data += data
