"""What can be fuzzed: a reader of bytes from outside, and how it may refuse them."""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, NamedTuple

from rmq_ha.base.errors import ProtocolViolation

Reader = Callable[[bytes], Any]


class Target(NamedTuple):
    """
    A reader, and what is known of it.

    :ivar read: takes any bytes; what it leaves behind does not matter.
    :ivar refuses: how it says no; anything else that it raises is a fault of ours.
    :ivar seeds: what it is made for, and bytes that were worth keeping.
    """

    read: Reader
    refuses: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]

    def reads(self, data: bytes) -> bool:
        """Whether it took them; raises whatever it must not."""
        try:
            self.read(data)
        except self.refuses:
            return False
        return True


TARGETS: dict[str, Target] = {}


def target(
    name: str, seeds: Iterable[bytes], refuses: tuple[type[Exception], ...] = (ProtocolViolation,)
) -> Callable[[Reader], Reader]:
    """Declare one."""

    def declare(read: Reader) -> Reader:
        assert name not in TARGETS
        TARGETS[name] = Target(read, refuses, tuple(seeds))
        return read

    return declare


def all_targets() -> dict[str, Target]:
    """By name; what stands in the modules beside this one, which take a second to import."""
    for module in (
        "of_wire",
        "of_store",
        "of_pop",
        "of_runs",
        "of_files",
        "of_links",
        "of_grpc",
        "of_door",
        "of_ports",
        "of_doctor",
        "of_page",
    ):
        import_module(f"tests.fuzz.{module}")
    return TARGETS
