"""messageRequestMode.json: whether a group pulls or pops the messages of a topic.

Spec: pop.md, section 2.8.
"""

from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred

from rmq_ha.base.persisted_table import PersistedTable
from rmq_ha.base.seams import Disk, Worker
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.members import to_members
from rmq_ha.base.wire.pop_bodies import RequestMode, RequestModeTable

PULL, POP = "PULL", "POP"
Modes = Mapping[str, Mapping[str, RequestMode]]


class RequestModes(PersistedTable):
    """
    What mqadmin setConsumeMode set, by topic and group.

    :ivar on_change: called with the name of each topic whose modes changed here.
    """

    without_file = "lets all groups pull"

    def __init__(self, disk: Disk, worker: Worker, path: str) -> None:
        super().__init__(disk, worker, path)
        self.on_change: Callable[[str], None] = lambda topic: None
        self._modes: dict[str, dict[str, RequestMode]] = {}

    @property
    def table(self) -> Modes:
        """All modes; only read it."""
        return self._modes

    def get(self, topic: str, group: str) -> RequestMode | None:
        """Return the mode of a group for a topic; None if nobody set one."""
        return self._modes.get(topic, {}).get(group)

    def set(self, mode: RequestMode) -> "Deferred[bool]":
        """
        Set the mode of a group for a topic.

        :returns: see `persist`.
        """
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self.on_change(mode.topic)
        return self.persist()

    def replace_all(self, modes: Modes) -> "Deferred[bool]":
        """
        Replace the table by the master's, at a slave.

        :returns: see `persist`.
        """
        taken = {topic: dict(groups) for topic, groups in modes.items()}
        if taken == self._modes:
            return self.persist_if_dirty()
        self._modes = taken
        return self.persist()

    def forget(self, *, topic: str = "", group: str = "") -> None:
        """Forget the modes of a topic, or of a group, because it is deleted."""
        changed = [topic] if self._modes.pop(topic, None) is not None else []
        for name, groups in list(self._modes.items()):
            if groups.pop(group, None) is not None:
                changed.append(name)
            if not groups:
                del self._modes[name]
        for name in changed:
            self.on_change(name)
        if changed:
            self.persist()

    def to_body(self) -> bytes:
        """Return the answer to GET_ALL_MESSAGE_REQUEST_MODE (402)."""
        return RequestModeTable(self._modes).encode()

    def entry(self, topic: str) -> dict[str, Any] | None:
        """Return the modes of a topic as they are sent to slaves; None if it has none."""
        groups = self._modes.get(topic)
        return None if groups is None else {name: to_members(item) for name, item in groups.items()}

    def encode(self) -> bytes:
        return fastjson.pretty(RequestModeTable(self._modes))

    def decode(self, data: bytes) -> None:
        """
        Take over a file's modes.

        :raises ProtocolViolation: the text does not hold modes.
        """
        self._modes = RequestModeTable.decode(data).modes
