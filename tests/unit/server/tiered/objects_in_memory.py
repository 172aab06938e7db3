"""An object store in memory, whose calls a test can make fail."""

from rmq_ha.server.tiered.objects import TierError


class MemoryObjects:
    """
    :ivar objects: content by key.
    :ivar fails: a text; calls for keys that contain it fail. Empty: none fails.
    :ivar gets: keys and starts of all reads.
    """

    def __init__(self):
        self.objects = {}
        self.uploads = {}
        self.fails = ""
        self.gets = []

    def _check(self, key):
        if self.fails and self.fails in key:
            raise TierError(f"no connection for {key}")

    def put(self, key, data):
        self._check(key)
        self.objects[key] = bytes(data)

    def get(self, key, start=0, size=None):
        self._check(key)
        self.gets.append((key, start))
        if key not in self.objects:
            raise TierError(f"{key} is not there")
        data = self.objects[key]
        return data[start:] if size is None else data[start : start + size]

    def keys(self, prefix):
        self._check(prefix)
        return sorted(key for key in self.objects if key.startswith(prefix))

    def delete(self, key):
        self._check(key)
        self.objects.pop(key, None)

    def begin(self, key):
        self._check(key)
        self.uploads[key] = []
        return key

    def put_part(self, key, upload, number, data):
        self._check(key)
        parts = self.uploads[upload]
        assert number == len(parts) + 1
        parts.append(bytes(data))
        return str(number)

    def finish(self, key, upload, tags):
        self._check(key)
        parts = self.uploads.pop(upload)
        assert tags == [str(number + 1) for number in range(len(parts))]
        self.objects[key] = b"".join(parts)

    def abandon(self, key, upload):
        self.uploads.pop(upload, None)
