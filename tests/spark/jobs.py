"""What a job is given, without a command line, for a session that goes on."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rmq_ha.base.host import blocking
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.ops.offsets.places import Place, parse_place


class FakeJob:
    """
    As `rmq_ha.lake.spark.running.Job`.

    :ivar notes: what it was told.
    """

    name = "test"

    def __init__(self, engine: Any, now_ms: int | None = None) -> None:
        self._engine = engine
        self.spark = getattr(engine, "spark", engine)
        self.client = ClientConfig()
        self.notes: list[str] = []
        self._now_ms = now_ms

    def engine(self) -> Any:
        return self._engine

    def now_ms(self) -> int:
        """What was given, else the time."""
        return blocking.now_ms() if self._now_ms is None else self._now_ms

    def place(self, text: str) -> Place:
        """Nothing is copied."""
        return parse_place(text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def progress(self, label: str) -> AbstractContextManager[None]:
        return nullcontext()
