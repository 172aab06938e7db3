"""PersistedTable. Spec: store.md, section 12.1."""

from twisted.trial.unittest import SynchronousTestCase

from rmq_ha.base.errors import ProtocolViolation, StoreError
from rmq_ha.base.persisted_table import PersistedTable
from rmq_ha.testing.worker import AtOnce

PATH = "/store/config/t.json"


class FakeDisk:
    """Files in a dict, and what was asked of them."""

    def __init__(self, **files: bytes) -> None:
        self.files = {PATH + name: data for name, data in files.items()}
        self.refuse = False
        self.backups: list[bool] = []

    def read_bytes(self, path: str) -> bytes:
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def replace(self, path: str, data: bytes, *, backup: bool = False) -> None:
        if self.refuse:
            raise OSError(28, "No space left on device")
        self.backups.append(backup)
        if backup and path in self.files:
            self.files[path + ".bak"] = self.files[path]
        self.files[path] = data


class Table(PersistedTable):
    value = "default"

    def encode(self) -> bytes:
        return b"ok:" + self.value.encode()

    def decode(self, data: bytes) -> None:
        if not data.startswith(b"ok:"):
            raise ProtocolViolation("no ok")
        self.value = data[3:].decode()


class PersistedTests(SynchronousTestCase):
    def table(self, **files: bytes) -> Table:
        self.disk, self.worker = FakeDisk(**files), AtOnce()
        return Table(self.disk, self.worker, PATH)  # type: ignore[arg-type]

    def loaded(self, **files: bytes) -> Table:
        table = self.table(**files)
        table.load()
        return table

    def test_load(self) -> None:
        """The file counts; without one, the backup; without both, the defaults."""
        self.assertEqual(self.loaded(**{"": b"ok:1", ".bak": b"ok:2"}).value, "1")
        self.assertEqual(self.loaded(**{".bak": b"ok:2"}).value, "2")
        self.assertEqual(self.loaded().value, "default")

    def test_load_damaged(self) -> None:
        """An empty, zero-filled or torn file gives way to its backup."""
        for damage in (b"", b"\0\0\0", b"o"):
            self.assertEqual(self.loaded(**{"": damage, ".bak": b"ok:2"}).value, "2")

    def test_load_damaged_without_backup(self) -> None:
        """A damaged file without a backup means defaults, as RocketMQ does it."""
        self.assertEqual(self.loaded(**{"": b"torn"}).value, "default")
        self.assertEqual(self.loaded(**{"": b"torn", ".bak": b""}).value, "default")

    def test_load_both_damaged(self) -> None:
        """Nobody guesses then: the start stops, and the error says what to do."""
        for files in ({"": b"torn", ".bak": b"torn"}, {".bak": b"torn"}):
            error = self.assertRaises(StoreError, self.loaded, **files)
            self.assertIn(PATH + ",", str(error).replace(" is", ",").replace(" cannot", ","))
            self.assertIn(PATH + ".bak", str(error))
            self.assertIn("start with defaults", str(error))

    def test_unreadable(self) -> None:
        """A file that cannot be read counts as damaged, not as missing."""
        table = self.table(**{".bak": b"torn"})

        def refuse(path: str) -> bytes:
            raise PermissionError(13, "Permission denied", path)

        self.disk.read_bytes = refuse  # type: ignore[method-assign]
        self.assertRaises(StoreError, table.load)

    def test_persist(self) -> None:
        """Written with a backup of what was there."""
        table = self.loaded(**{"": b"ok:1"})
        table.value = "2"
        self.assertTrue(self.successResultOf(table.persist()))
        self.assertEqual(self.disk.files, {PATH: b"ok:2", PATH + ".bak": b"ok:1"})
        self.assertFalse(table.is_dirty)

    def test_a_damaged_file_never_becomes_the_backup(self) -> None:
        """The good backup that was loaded survives the first write."""
        table = self.loaded(**{"": b"torn", ".bak": b"ok:1"})
        self.successResultOf(table.persist())
        self.assertEqual(self.disk.files, {PATH: b"ok:1", PATH + ".bak": b"ok:1"})
        table.value = "2"
        self.successResultOf(table.persist())
        self.assertEqual(self.disk.backups, [False, True])

    def test_coalesce(self) -> None:
        """Changes during a write share the next one; each caller hears when his is on disk."""
        table = self.table()
        self.worker.later = True
        first = table.persist()
        table.value = "2"
        second = table.persist()
        table.value = "3"
        third = table.persist()
        self.worker.work()
        self.successResultOf(first)
        self.assertNoResult(second)
        self.assertEqual(self.disk.files[PATH], b"ok:default")
        self.worker.work()
        self.successResultOf(second)
        self.successResultOf(third)
        self.assertEqual(self.disk.files[PATH], b"ok:3")
        self.assertEqual(self.worker.queue, [])

    def test_who_asks_during_a_write_that_takes_all_hears_when_it_is_on_the_disk(self) -> None:
        """`persist_if_dirty` is the last call before a stop: True must not come before the file."""
        table = self.table()
        self.assertFalse(table.is_dirty)
        self.assertTrue(self.successResultOf(table.persist_if_dirty()))
        self.assertEqual(self.disk.files, {})
        self.worker.later = True
        table.persist()
        late = table.persist_if_dirty()
        self.assertNoResult(late)
        self.worker.work()
        self.assertTrue(self.successResultOf(late))
        self.assertEqual(self.disk.files, {PATH: b"ok:default"})
        self.assertEqual(self.worker.queue, [])

    def test_a_change_during_a_failed_write_is_not_forgotten(self) -> None:
        """Who asked during it gets the answer of the write that took his change."""
        table = self.table()
        self.worker.later = True
        first = table.persist()
        table.value = "2"
        second = table.persist()
        self.assertTrue(table.is_dirty)
        self.disk.refuse = True
        self.worker.work()
        self.assertFalse(self.successResultOf(first))
        self.disk.refuse = False
        self.worker.work()
        self.assertTrue(self.successResultOf(second))
        self.assertEqual(self.disk.files[PATH], b"ok:2")
        self.flushLoggedErrors(OSError)

    def test_content_that_cannot_be_written_down_is_told_and_stays_dirty(self) -> None:
        table = self.table()

        def refuse() -> bytes:
            raise ProtocolViolation("a name")

        with self.subTest("then"):
            table.encode = refuse  # type: ignore[method-assign]
            self.assertFalse(self.successResultOf(table.persist()))
            self.assertTrue(table.is_dirty)
            self.assertEqual(len(self.flushLoggedErrors(ProtocolViolation)), 1)
        del table.encode
        self.assertTrue(self.successResultOf(table.persist_if_dirty()))
        self.assertEqual(self.disk.files, {PATH: b"ok:default"})

    def test_disk_refuses(self) -> None:
        """A full disk is logged, told, and tried again with `persist_if_dirty`."""
        table = self.table()
        self.disk.refuse = True
        self.assertFalse(self.successResultOf(table.persist()))
        self.assertTrue(table.is_dirty)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.disk.refuse = False
        self.assertTrue(self.successResultOf(table.persist_if_dirty()))
        self.assertEqual(self.disk.files[PATH], b"ok:default")
        self.disk.files.clear()
        self.assertTrue(self.successResultOf(table.persist_if_dirty()))
        self.assertEqual(self.disk.files, {})

    def test_without_path(self) -> None:
        """A table without a file works in memory."""
        table = Table(FakeDisk(), AtOnce(), "")  # type: ignore[arg-type]
        table.load()
        self.assertTrue(self.successResultOf(table.persist()))
