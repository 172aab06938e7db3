"""One plugin of each kind; the tests install this file as `twisted/plugins/` of a package."""

from typing import Any

from zope.interface import implementer

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.interfaces import (
    IAccessPlugin,
    IAccessValidator,
    ICommitLogDispatcher,
    IConsumeMessageHook,
    IDispatcherPlugin,
    IHookPlugin,
    IJournalPlugin,
    IMessageStore,
    IMessageStorePlugin,
    ISendMessageHook,
)
from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.server.replication.classic.journal import ClassicJournal
from rmq_ha.server.store.journal_statistics import JournalStatistics

SEEN: list[Any] = []
"""What the plugins were told, in order."""


@implementer(IMessageStore)
class Store:
    """Knows only the interface: upper-cases bodies on the way in."""

    def __init__(self, name: str, below: Any) -> None:
        self.name = name
        self.below = below

    def put_message(self, message: Any) -> Any:
        SEEN.append((self.name, "put", message.topic, bytes(message.body)))
        return self.below.put_message(message)

    def put_batch(self, batch: Any) -> Any:
        SEEN.append((self.name, "batch", batch.topic, len(batch.members)))
        return self.below.put_batch(batch)

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_nums: int,
        message_filter: Any,
    ) -> Any:
        SEEN.append((self.name, "get", topic, queue_offset))
        return self.below.get_message(
            group, topic, queue_id, queue_offset, max_nums, message_filter
        )


@implementer(IMessageStorePlugin)
class StorePlugin:
    def __init__(self, name: str) -> None:
        self.name = name

    def wrap_store(self, broker: Any, store: Any) -> Any:
        return Store(self.name, store)


class Replication:
    """A replica that never takes anything."""

    def __init__(self, log: Any) -> None:
        self.log = log

    def start(self) -> None:
        SEEN.append("replication starts")

    def stop(self) -> None:
        SEEN.append("replication stops")

    def appended(self) -> None:
        SEEN.append(("appended", self.log.max_offset))

    def is_replicated(self, start_offset: int, next_offset: int) -> bool:
        return False

    def when_replicated(self, next_offset: int, start_offset: int, decided: Any) -> Any:
        SEEN.append(("wait", start_offset, next_offset))
        return PutMessageStatus.SLAVE_NOT_AVAILABLE

    def replicated_offset(self) -> int:
        return 0

    def set_master_address(self, address: str | None) -> None:
        SEEN.append(("master", address))

    def statistics(self) -> JournalStatistics:
        return JournalStatistics()


class Journal(ClassicJournal):
    """The built-in one: sees what is appended, and may have another replica."""

    def append(self, messages: Any, now_ms: int) -> Any:
        SEEN.append(("append", len(messages)))
        return super().append(messages, now_ms)

    def append_batch(self, batch: Any, now_ms: int) -> Any:
        SEEN.append(("batch", len(batch.sizes)))
        return super().append_batch(batch, now_ms)


@implementer(IJournalPlugin)
class JournalPlugin:
    def __init__(self, name: str) -> None:
        self.name = name

    def make_journal(self, broker: Any) -> Any:
        if self.name == "no-journal":
            return Useless()
        journal = Journal(broker.host, broker.configuration)
        if self.name == "old-journal":
            journal.kept = journal.when_kept  # type: ignore[attr-defined]
        if self.name == "fake-replica":
            journal.replicated_by(Replication(journal.log))
        return journal


@implementer(ICommitLogDispatcher)
class Dispatcher:
    def __init__(self, fails: bool) -> None:
        self.fails = fails

    def dispatch(self, requests: list[Any]) -> None:
        SEEN.append([(item.topic, item.queue_offset) for item in requests])
        if self.fails:
            raise RuntimeError("this dispatcher always fails")


@implementer(IDispatcherPlugin)
class DispatcherPlugin:
    name = "fake-dispatcher"

    def make_dispatcher(self, broker: Any) -> Any:
        return Dispatcher(broker.option("fake-dispatcher.fails") == "true")


@implementer(ISendMessageHook)
class SendHook:
    def __init__(self, broken: str | None) -> None:
        self.broken = broken

    def before_send(self, context: dict[str, Any]) -> None:
        SEEN.append(("before", dict(context)))
        if context["properties"].get("KEYS") == "refuse":
            raise RequestRejected(16, "the hook wants no such message")
        if self.broken == "before":
            raise RuntimeError("a fault of the hook")

    def after_send(self, context: dict[str, Any]) -> None:
        SEEN.append(("after", dict(context)))
        if self.broken == "after":
            raise RuntimeError("a fault of the hook")


@implementer(IConsumeMessageHook)
class ConsumeHook:
    def before_consume(self, context: dict[str, Any]) -> None:
        SEEN.append(("consume", dict(context)))
        if context["consumer_group"] == "refused":
            raise RequestRejected(16, "the hook wants no such reader")


@implementer(IHookPlugin)
class HookPlugin:
    def __init__(self, name: str, hook: type) -> None:
        self.name = name
        self.hook = hook

    def make_hook(self, broker: Any) -> Any:
        if self.hook is SendHook:
            return SendHook(broker.option("fake-send.broken"))
        return self.hook()


@implementer(IAccessValidator)
class Validator:
    def validate(self, request: Any, remote_address: str) -> None:
        SEEN.append((request.code, remote_address.partition(":")[0]))
        if request.code == 310 and request.ext["a"] != "friends":
            raise RequestRejected(16, f"{request.ext['a']} are no friends")


@implementer(IAccessPlugin)
class AccessPlugin:
    name = "fake-acl"

    def make_validator(self, broker: Any) -> Any:
        return Validator()


class Useless:
    """Provides nothing."""


outer = StorePlugin("outer")
inner = StorePlugin("inner")
journal = JournalPlugin("fake-journal")
replica = JournalPlugin("fake-replica")
no_journal = JournalPlugin("no-journal")
old_journal = JournalPlugin("old-journal")
dispatcher = DispatcherPlugin()
send_hook = HookPlugin("fake-send", SendHook)
consume_hook = HookPlugin("fake-consume", ConsumeHook)
useless_hook = HookPlugin("useless", Useless)
access = AccessPlugin()
