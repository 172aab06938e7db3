"""The duties of every implementation of a seam, as test mixins.

Mix one with `unittest.TestCase`, and define the methods that make the object under test. The
simulated and the real implementations pass the same tests, so that the results of the simulator
hold for real machines.
"""

from collections.abc import Callable
from typing import Any, TypeVar
from unittest import TestCase

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.error import (
    AlreadyCalled,
    AlreadyCancelled,
    CannotListenError,
    ConnectionRefusedError,
)
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from rmq_ha.base.errors import StoreError, StoreLocked
from rmq_ha.base.seams import Disk, Host, Network, Worker

T = TypeVar("T")


class ClockContract(TestCase):
    """`IReactorTime` as this project uses it."""

    def make_clock(self) -> IReactorTime:
        """Return a clock without timers."""
        raise NotImplementedError

    def pass_time(self, clock: IReactorTime, seconds: float) -> None:
        """Let a number of seconds pass on the clock."""
        raise NotImplementedError

    def step_wall_clock(self, seconds: float) -> None:
        """Set the time of day on the machine of the clock that was made."""
        raise NotImplementedError

    def test_monotonic(self) -> None:
        """
        The clock never goes back, and it moves by the seconds that pass, even when the time of day
        is set.
        """
        clock = self.make_clock()
        seen = [clock.seconds()]
        for step in (-3600.0, 7200.0, -3600.0):
            self.step_wall_clock(step)
            seen.append(clock.seconds())
            self.pass_time(clock, 0.01)
            seen.append(clock.seconds())
        self.assertEqual(seen, sorted(seen))
        self.assertGreaterEqual(seen[-1] - seen[0], 0.03)
        self.assertLess(seen[-1] - seen[0], 1800)

    def test_armed_while_the_wall_clock_is_set(self) -> None:
        """A timer fires after its seconds, even if the time of day is set meanwhile."""
        clock = self.make_clock()
        for step in (-3600.0, 7200.0):
            fired: list[str] = []
            moved = clock.callLater(0.001, fired.append, "moved")
            clock.callLater(0.02, fired.append, "soon")
            later = clock.callLater(1800, fired.append, "later")
            self.step_wall_clock(step)
            moved.reset(0.04)
            clock.callLater(0, fired.append, "at once")
            self.pass_time(clock, 0.1)
            self.assertCountEqual(fired, ["at once", "soon", "moved"])
            self.assertLess(fired.index("soon"), fired.index("moved"))
            self.assertLess(later.getTime() - clock.seconds(), 1800)
            later.cancel()

    def test_order(self) -> None:
        """Timers fire in the order of their times, not before them."""
        clock = self.make_clock()
        fired: list[str] = []
        clock.callLater(0.1, fired.append, "second")
        clock.callLater(0.01, fired.append, "first")
        later = clock.callLater(60, fired.append, "never")
        self.pass_time(clock, 0.15)
        self.assertEqual(fired, ["first", "second"])
        self.assertEqual([later], list(clock.getDelayedCalls()))
        later.cancel()

    def test_zero_is_later(self) -> None:
        """`callLater(0)` runs after the call that asks for it, at the same or a later time."""
        clock = self.make_clock()
        seen: list[str] = []

        def outer() -> None:
            clock.callLater(0, seen.append, "inner")
            seen.append("outer")

        clock.callLater(0, outer)
        self.pass_time(clock, 0.02)
        self.assertEqual(seen, ["outer", "inner"])

    def test_cancelled_and_called(self) -> None:
        """A timer knows whether it is active, and refuses to be changed when it is not."""
        clock = self.make_clock()
        fired: list[int] = []
        cancelled = clock.callLater(0.01, fired.append, 1)
        called = clock.callLater(0.0, fired.append, 2)
        cancelled.cancel()
        self.pass_time(clock, 0.03)
        self.assertEqual(fired, [2])
        self.assertFalse(cancelled.active())
        self.assertFalse(called.active())
        self.assertRaises(AlreadyCancelled, cancelled.reset, 1)
        self.assertRaises(AlreadyCalled, called.cancel)
        self.assertEqual(list(clock.getDelayedCalls()), [])

    def test_moved(self) -> None:
        """
        `reset` counts from now, and `delay` from the planned time; both can make a timer earlier or
        later.
        """
        clock = self.make_clock()
        fired: list[str] = []
        later = clock.callLater(0.01, fired.append, "later")
        sooner = clock.callLater(60, fired.append, "sooner")
        later.delay(59)
        sooner.reset(0.01)
        self.assertGreater(later.getTime(), sooner.getTime() + 50)
        self.pass_time(clock, 0.04)
        self.assertEqual(fired, ["sooner"])
        later.cancel()

    def test_negative(self) -> None:
        """No timer is due before now."""
        with self.assertRaises((ValueError, AssertionError)):
            self.make_clock().callLater(-1, lambda: None)


class SoonContract(TestCase):
    """The contract of `Host.soon`, which calls functions in later turns of the reactor."""

    def make_host(self) -> Host:
        """Return a host whose reactor has nothing to do."""
        raise NotImplementedError

    def pass_turns(self, condition: Callable[[], object]) -> None:
        """Let turns pass until the condition is true."""
        raise NotImplementedError

    def take_failures(self) -> list[type[BaseException]]:
        """Return the exceptions that were logged since the last call."""
        raise NotImplementedError

    def test_order(self) -> None:
        """Functions are called once, later, and in the order in which they were given."""
        host, called = self.make_host(), list[str]()
        host.soon(lambda: called.append("first"))
        host.soon(lambda: called.append("second"))
        self.assertEqual(called, [])
        self.pass_turns(lambda: called)
        host.soon(lambda: called.append("third"))
        self.pass_turns(lambda: "third" in called)
        self.assertEqual(called, ["first", "second", "third"])

    def test_asked_within_a_function(self) -> None:
        """
        A function that gives itself to `soon` again runs after the functions that were given
        before.
        """
        host, called = self.make_host(), list[str]()

        def ask_again() -> None:
            called.append("asks")
            if called.count("asks") < 3:
                host.soon(ask_again)

        host.soon(ask_again)
        host.soon(lambda: called.append("second"))
        self.pass_turns(lambda: called.count("asks") == 3)
        self.assertEqual(called, ["asks", "second", "asks", "asks"])

    def test_endless(self) -> None:
        """A function that gives itself to `soon` again and again lets timers fire."""
        host, fired = self.make_host(), list[str]()

        def ask_again() -> None:
            if not fired:
                host.soon(ask_again)

        host.soon(ask_again)
        host.clock.callLater(0, fired.append, "timer")
        self.pass_turns(lambda: fired)

    def test_asked_by_a_timer(self) -> None:
        """
        A timer may call `soon`, too, and no other event is needed for the function to be called.
        """
        host, called = self.make_host(), list[str]()
        host.clock.callLater(0.001, lambda: host.soon(lambda: called.append("called")))
        self.pass_turns(lambda: called)

    def test_failure(self) -> None:
        """An exception is logged, and the other functions are called all the same."""
        host, called = self.make_host(), list[str]()

        def fail() -> None:
            raise ValueError("a mistake of a function")

        host.soon(fail)
        host.soon(lambda: called.append("other"))
        self.pass_turns(lambda: called)
        self.assertEqual(self.take_failures(), [ValueError])


class WorkerContract(TestCase):
    """The contract of `rmq_ha.base.seams.Worker`."""

    def make_worker(self) -> Worker:
        """Return a worker that has nothing to do."""
        raise NotImplementedError

    def wait(self, deferred: "Deferred[T]") -> T:
        """Run until a Deferred fires; return its result or raise its failure."""
        raise NotImplementedError

    def test_result(self) -> None:
        """A call's Deferred fires with what the function returned, not at once."""
        done = self.make_worker().call(lambda first, second: first + second, 1, 2)
        self.assertFalse(done.called)
        self.assertEqual(self.wait(done), 3)

    def test_failure(self) -> None:
        """The Deferred fails with the exception that the function raises."""

        def broken() -> None:
            raise OSError(28, "full")

        with self.assertRaises(OSError):
            self.wait(self.make_worker().call(broken))

    def test_many(self) -> None:
        """Every call runs once, and every Deferred fires."""
        worker = self.make_worker()
        ran: list[int] = []
        calls = [worker.call(ran.append, number) for number in range(20)]
        self.wait(DeferredList(calls))
        self.assertEqual(sorted(ran), list(range(20)))


class DiskContract(TestCase):
    """The contract of `rmq_ha.base.seams.Disk` and `File`."""

    def make_disk(self) -> Disk:
        """Return a disk."""
        raise NotImplementedError

    def make_root(self) -> str:
        """Return the absolute path of an empty directory on that disk."""
        raise NotImplementedError

    def setUp(self) -> None:
        """Make a disk and an empty directory."""
        self.disk = self.make_disk()
        self.root = self.make_root()

    def test_new_file(self) -> None:
        """A missing file is created with its directories, full of zeros."""
        file = self.disk.open(f"{self.root}/a/b/00000", 1000)
        self.assertEqual(file.size, 1000)
        self.assertEqual(file.pread(2000, 990), bytes(10))
        self.assertEqual(file.pread(10, 1000), b"")
        for size, position in ((-1, 0), (1, -1)):
            with self.assertRaises(OSError):
                file.pread(size, position)
        file.close()
        file.close()
        self.assertEqual(self.disk.size(f"{self.root}/a/b/00000"), 1000)
        self.assertTrue(self.disk.is_dir(f"{self.root}/a/b"))

    def test_written(self) -> None:
        """
        Bytes that were written are read back, by this and by later handles, and through the map.
        """
        path = f"{self.root}/file"
        file = self.disk.open(path, 1000)
        file.pwrite(b"hello", 10)
        file.pwrite(memoryview(b"yes"), 997)
        file.sync()
        self.assertEqual(file.pread(7, 9), b"\0hello\0")
        self.assertEqual(bytes(file.map()[997:1000]), b"yes")
        file.close()
        self.assertEqual(self.disk.open(path, 1000).pread(5, 10), b"hello")

    def test_mapped(self) -> None:
        """Bytes that are put into the map are read from the file."""
        file = self.disk.open(f"{self.root}/file", 8192)
        file.reserve(0, 8192)
        buffer = file.map()
        buffer[5000:5005] = b"hello"
        file.forget(0, 4096)
        file.sync()
        self.assertEqual(file.pread(7, 4999), b"\0hello\0")
        file.close()

    def test_zeroed(self) -> None:
        """`zero` clears to the end and keeps the size."""
        file = self.disk.open(f"{self.root}/file", 9000)
        file.pwrite(b"x" * 9000, 0)
        file.zero(4500)
        self.assertEqual(file.pread(9000, 0), b"x" * 4500 + bytes(4500))
        self.assertEqual(file.size, 9000)
        file.pwrite(b"y", 8999)
        self.assertEqual(file.pread(2, 8998), b"\0y")
        file.close()

    def test_holes(self) -> None:
        """`next_data` passes over bytes that were never written, and over no others."""
        size = 1 << 20
        file = self.disk.open(f"{self.root}/file", size)
        self.assertEqual(file.next_data(0), size)
        file.pwrite(b"\0\0x", 600_000)
        self.assertIn(file.next_data(0), range(500_000, 600_001))
        self.assertEqual(file.next_data(600_001), 600_001)
        self.assertEqual(file.next_data(700_000), size)
        self.assertEqual(file.next_data(size), size)
        file.close()

    def test_other_size(self) -> None:
        """A file of another size is not opened."""
        self.disk.open(f"{self.root}/file", 100).close()
        self.assertRaises(StoreError, self.disk.open, f"{self.root}/file", 200)

    def test_listed(self) -> None:
        """A directory lists its names in order; a missing one is empty."""
        for name in ("2", "10", "1"):
            self.disk.open(f"{self.root}/d/{name}/x", 1).close()
        self.assertEqual(self.disk.list_dir(f"{self.root}/d"), ["1", "10", "2"])
        self.assertEqual(self.disk.list_dir(f"{self.root}/none"), [])
        self.assertFalse(self.disk.exists(f"{self.root}/none"))
        self.assertFalse(self.disk.is_dir(f"{self.root}/d/1/x"))
        self.assertTrue(self.disk.exists(f"{self.root}/d/1/x"))

    def test_replaced(self) -> None:
        """A small file changes as a whole; the old content becomes `.bak` when asked."""
        path = f"{self.root}/config/topics.json"
        self.assertRaises(FileNotFoundError, self.disk.read_bytes, path)
        self.disk.replace(path, b"one", backup=True)
        self.assertEqual(self.disk.read_bytes(path), b"one")
        self.disk.replace(path, b"two", backup=True)
        self.assertEqual(self.disk.read_bytes(path), b"two")
        self.assertEqual(self.disk.read_bytes(path + ".bak"), b"one")
        self.disk.replace(path, b"")
        self.assertEqual(self.disk.size(path), 0)
        names = self.disk.list_dir(f"{self.root}/config")
        self.assertEqual(names, ["topics.json", "topics.json.bak"])

    def test_boot(self) -> None:
        """`boot_id` of a directory stays the same, and that of a copy differs."""
        self.disk.make_dirs(f"{self.root}/store")
        self.disk.make_dirs(f"{self.root}/copy")
        boot = self.disk.boot_id(f"{self.root}/store")
        self.assertEqual(self.disk.boot_id(f"{self.root}/store"), boot)
        self.assertNotEqual(self.disk.boot_id(f"{self.root}/copy"), boot)

    def test_place(self) -> None:
        """`place_of` differs for a file and its copy; a missing file has no place."""
        for name in ("one", "copy"):
            self.disk.open(f"{self.root}/{name}", 10).close()
        place = self.disk.place_of(f"{self.root}/one")
        self.assertEqual(self.disk.place_of(f"{self.root}/one"), place)
        self.assertNotIn(self.disk.place_of(f"{self.root}/copy"), (place, b""))

    def test_synced_as_a_whole(self) -> None:
        """
        `sync_tree` syncs all files of a directory, including open and mapped ones; a missing
        directory is no error.
        """
        file = self.disk.open(f"{self.root}/whole/a/file", 10)
        file.pwrite(b"content", 0)
        file.reserve(0, 10)
        file.map()[7:10] = b"end"
        self.disk.sync_tree(f"{self.root}/whole")
        self.disk.sync_tree(f"{self.root}/none")
        self.assertEqual(file.pread(10, 0), b"contentend")
        file.close()

    def test_removed(self) -> None:
        """
        Removing a missing file is harmless; `remove_tree` removes a directory with all files in it.
        """
        self.disk.open(f"{self.root}/d/e/file", 10).close()
        self.disk.make_dirs(f"{self.root}/d/f")
        self.disk.remove(f"{self.root}/none")
        self.disk.remove_tree(f"{self.root}/none")
        self.disk.remove(f"{self.root}/d/e/file")
        self.assertEqual(self.disk.list_dir(f"{self.root}/d"), ["e", "f"])
        self.disk.open(f"{self.root}/d/e/file", 10).close()
        self.disk.remove_tree(f"{self.root}/d")
        self.assertFalse(self.disk.exists(f"{self.root}/d"))
        self.assertFalse(self.disk.exists(f"{self.root}/d/e/file"))

    def test_moved(self) -> None:
        """
        `move` renames a file, or a directory with all files in it, and makes missing directories.
        """
        file = self.disk.open(f"{self.root}/m/n/file", 10)
        file.pwrite(b"content", 0)
        file.close()
        self.disk.move(f"{self.root}/m", f"{self.root}/new/place")
        self.assertFalse(self.disk.exists(f"{self.root}/m"))
        self.assertEqual(self.disk.list_dir(f"{self.root}/new/place/n"), ["file"])
        self.disk.move(f"{self.root}/new/place/n/file", f"{self.root}/file")
        self.assertEqual(self.disk.read_bytes(f"{self.root}/file"), b"content\0\0\0")
        self.assertEqual(self.disk.list_dir(f"{self.root}/new/place/n"), [])
        with self.assertRaises(FileNotFoundError):
            self.disk.move(f"{self.root}/none", f"{self.root}/other")

    def test_removed_while_open(self) -> None:
        """An open file can be read after it was removed; a new file of the same name is empty."""
        path = f"{self.root}/file"
        old = self.disk.open(path, 10)
        old.pwrite(b"old", 0)
        self.disk.remove(path)
        new = self.disk.open(path, 10)
        self.assertEqual(new.pread(3, 0), bytes(3))
        self.assertEqual(old.pread(3, 0), b"old")
        old.close()
        new.close()

    def test_locked(self) -> None:
        """The lock file says `lock`, and may be taken again after its release."""
        path = f"{self.root}/lock"
        lock = self.disk.lock(path)
        self.assertEqual(self.disk.read_bytes(path), b"lock")
        lock.release()
        self.disk.lock(path).release()

    def test_locked_out(self) -> None:
        """The second store that takes the lock is refused."""
        path = f"{self.root}/lock"
        lock = self.disk.lock(path)
        self.check_locked_out(path)
        lock.release()

    def check_locked_out(self, path: str) -> None:
        """A second store must be refused; POSIX locks only hold against other processes."""
        self.assertRaises(StoreLocked, self.disk.lock, path)

    def test_times_and_usage(self) -> None:
        """Times are plausible milliseconds, and used and free bytes fit the partition."""
        self.disk.open(f"{self.root}/file", 100).close()
        self.assertGreater(self.disk.mtime_ms(f"{self.root}/file"), 1_600_000_000_000)
        usage = self.disk.usage(self.root)
        assert usage is not None
        self.assertGreater(usage.total, 0)
        self.assertLessEqual(usage.used + usage.usable, usage.total)
        self.assertIsNone(self.disk.usage(f"{self.root}/none"))


class Recorder(Protocol):
    """A protocol that keeps the bytes and events that reach it."""

    def __init__(self) -> None:
        self.data = b""
        self.made = 0
        self.lost: Failure | None = None
        self.changed: Callable[[], None] = lambda: None

    def connectionMade(self) -> None:
        """Count."""
        self.made += 1
        self.changed()

    def dataReceived(self, data: bytes) -> None:
        """Keep."""
        self.data += data
        self.changed()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Keep."""
        self.lost = reason
        self.changed()


class PullProducer:
    """
    Writes one block for each call of `resumeProducing`; after the last block it unregisters and
    closes.
    """

    def __init__(self, transport: Any, blocks: int, size: int) -> None:
        self.transport = transport
        self.blocks = blocks
        self.size = size

    def resumeProducing(self) -> None:
        """Write one more block."""
        if self.blocks:
            self.blocks -= 1
            self.transport.write(b"x" * self.size)
        else:
            self.transport.unregisterProducer()
            self.transport.loseConnection()

    def stopProducing(self) -> None:
        """Note that the connection is gone."""
        self.blocks = 0


class NetworkContract(TestCase):
    """The contract of `rmq_ha.base.seams.Network`: its endpoints, and their transports."""

    port = 0
    known_name = "localhost"

    def make_networks(self) -> tuple[Network, Network, str]:
        """Return a server's and a client's network, and the server's address for the client."""
        raise NotImplementedError

    def wait(self, deferred: "Deferred[T]") -> T:
        """Run until a Deferred fires; return its result or raise its failure."""
        raise NotImplementedError

    def run_until(self, condition: Callable[[], object]) -> None:
        """Run until a condition is true, or fail the test."""
        raise NotImplementedError

    def setUp(self) -> None:
        """Start a listening server, and connect a client."""
        self.server_network, self.client_network, self.address = self.make_networks()
        self.accepted: list[Recorder] = []
        factory = Factory()
        factory.buildProtocol = self._accept  # type: ignore[method-assign,assignment]
        self.listening = self.wait(self.server_network.server(self.port).listen(factory))
        self.used_port: int = self.listening.getHost().port  # type: ignore[attr-defined]
        self.client: Any = self.wait(self.connect())
        self.run_until(lambda: self.accepted and self.accepted[0].made)
        self.server: Any = self.accepted[0]

    def tearDown(self) -> None:
        """Close all connections and ports."""
        self.client.transport.abortConnection()
        self.server.transport.abortConnection()
        self.wait(self.listening.stopListening() or Deferred.fromCoroutine(_nothing()))

    def _accept(self, address: object) -> Recorder:
        self.accepted.append(Recorder())
        return self.accepted[-1]

    def connect(self) -> "Deferred[Any]":
        """Connect one more client."""
        endpoint = self.client_network.client(self.address, self.used_port, 2.0)
        return endpoint.connect(Factory.forProtocol(Recorder))

    def test_look_up(self) -> None:
        """A known name has addresses, and an unknown name has none."""
        self.assertIn(self.address, self.wait(self.client_network.look_up(self.known_name)))
        self.assertEqual(self.wait(self.client_network.look_up("nobody.invalid")), [])

    def test_addresses(self) -> None:
        """Both ends know both addresses."""
        here, remote = self.client.transport.getHost(), self.client.transport.getPeer()
        self.assertEqual((remote.host, remote.port), (self.address, self.used_port))
        peer = self.server.transport.getPeer()
        self.assertEqual((peer.host, peer.port), (here.host, here.port))

    def test_bytes_in_order(self) -> None:
        """All bytes that are written arrive, in order, in both directions."""
        sent = b"".join(b"%06d" % number for number in range(40000))
        self.client.transport.writeSequence([sent[:100], sent[100:100000]])
        self.client.transport.write(sent[100000:])
        self.server.transport.write(b"back")
        self.run_until(lambda: len(self.server.data) >= len(sent) and self.client.data)
        self.assertEqual(self.server.data, sent)
        self.assertEqual(self.client.data, b"back")

    def test_close(self) -> None:
        """`loseConnection` delivers all bytes that were written, then both sides end cleanly."""
        self.client.transport.write(b"x" * 300000)
        self.client.transport.loseConnection()
        self.run_until(lambda: self.server.lost and self.client.lost)
        self.assertEqual(len(self.server.data), 300000)
        self.assertIsNone(self.server.lost.check(OSError))

    def test_abort(self) -> None:
        """`abortConnection` ends both sides, not within the call itself."""
        self.client.transport.abortConnection()
        self.assertIsNone(self.client.lost)
        self.run_until(lambda: self.server.lost and self.client.lost)
        self.client.transport.write(b"ignored")

    def test_back_pressure(self) -> None:
        """A paused reader reads nothing; a streaming producer is paused, and resumed later."""
        calls: list[str] = []

        class Push:
            def pauseProducing(self) -> None:
                calls.append("pause")

            def resumeProducing(self) -> None:
                calls.append("resume")

            def stopProducing(self) -> None:
                calls.append("stop")

        self.server.transport.pauseProducing()
        transport = self.client.transport
        transport.registerProducer(Push(), True)
        transport.write(b"x" * 20_000_000)
        self.assertEqual(calls, ["pause"])
        self.server.transport.resumeProducing()
        self.run_until(lambda: len(self.server.data) == 20_000_000 and len(calls) > 1)
        self.assertEqual(calls, ["pause", "resume"])
        transport.unregisterProducer()

    def test_pull_producer(self) -> None:
        """A pull producer is asked at once, and again each time that all its bytes were sent."""
        transport = self.client.transport
        transport.registerProducer(PullProducer(transport, 50, 1000), False)
        self.run_until(lambda: self.server.lost and self.client.lost)
        self.assertEqual(self.server.data, b"x" * 50000)

    def test_producer_of_lost_connection(self) -> None:
        """A producer is stopped when its connection is lost."""
        transport = self.client.transport
        producer = PullProducer(transport, 0, 0)
        producer.resumeProducing = lambda: None  # type: ignore[method-assign]
        producer.blocks = 5
        transport.registerProducer(producer, False)
        self.assertRaises(RuntimeError, transport.registerProducer, producer, False)
        self.server.transport.abortConnection()
        self.run_until(lambda: self.client.lost)
        self.assertEqual(producer.blocks, 0)

    def test_refused(self) -> None:
        """Nobody listens: the connection is refused."""
        self.wait(self.listening.stopListening() or Deferred.fromCoroutine(_nothing()))
        with self.assertRaises(ConnectionRefusedError):
            self.wait(self.connect())

    def test_port_taken(self) -> None:
        """A second listener on the same port is refused."""
        endpoint = self.server_network.server(self.used_port)
        with self.assertRaises(CannotListenError):
            self.wait(endpoint.listen(Factory.forProtocol(Recorder)))

    def test_options(self) -> None:
        """The usual socket options may be set."""
        self.client.transport.setTcpNoDelay(True)
        self.client.transport.setTcpKeepAlive(True)
        self.assertTrue(self.client.transport.getTcpNoDelay())


async def _nothing() -> None:
    """Return a Deferred that has fired."""
