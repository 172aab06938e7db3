"""The extension points of rmq-ha.

A plugin is an object in `twisted.plugins` that provides one of the `I...Plugin` interfaces; the
properties file chooses it by its `name`. Guests come in through the same interfaces as the
built-ins. Plugins see an `IBrokerContext`, never the controller.
"""

from typing import Any

from twisted.plugin import IPlugin
from zope.interface import Attribute, Interface


class IBrokerContext(Interface):
    """What a plugin may know of the broker that it serves."""

    host = Attribute("`rmq_ha.base.seams.Host`: clock, disk, worker, network, random.")
    configuration = Attribute("`rmq_ha.base.config.broker_configuration.BrokerConfiguration`.")

    def option(name: str, default: str | None = None) -> str | None:
        """
        The plugin's own setting: `<plugin name>.<name>` in the properties file.

        :param name: `<plugin name>.<key>`.
        """

    def record_starting_at(physical_offset: int) -> bytes | None:
        """
        The record that starts at a physical offset; None where none does. Of the running broker.

        :raises StoreError: the disk refuses.
        """


class ICommitLogDispatcher(Interface):
    """Is shown every record once it is in the log (CommitLogDispatcher)."""

    def dispatch(requests: list[Any]) -> None:
        """
        :param requests: a list of `rmq_ha.base.model.message.DispatchRequest`, in log order. After
            an abnormal stop the last ones may come again.
        """


class IMessageStore(Interface):
    """
    Puts and gets. `AbstractPluginMessageStore`'s counterpart wraps one in another.

    Spec: store.md, sections 2.7 and 8.
    """

    def put_message(message: Any) -> Any:
        """
        :param message: a `rmq_ha.base.model.message.Message`.
        :returns: a Deferred that fires with a `PutMessageResult` and never fails.
        """

    def put_batch(batch: Any) -> Any:
        """As `put_message`, for a `MessageBatch`."""

    def get_message(
        group: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_nums: int,
        message_filter: Any,
    ) -> Any:
        """
        :param message_filter: None, or an `IMessageFilter`.
        :returns: a `GetMessageResult`, or None when the store cannot be read.
        """


class IMessageFilter(Interface):
    """Decides which messages a pull returns. Spec: store.md, section 8.3."""

    def matches_unit(tags_code: int) -> bool:
        """By the consume queue's number alone."""

    def matches_extension(tags_code: int, store_timestamp: int, bit_map: bytes | None) -> bool:
        """
        As `matches_unit`, by what the consume queue's extension holds.

        :param bit_map: which SQL92 filters the message matched, for those that are older than it.
        """

    def matches_record(record: bytes) -> bool:
        """By the whole record; called only when the unit matched."""

    def matches_properties(properties: dict[str, str]) -> bool:
        """As `matches_record`, for a new message whose properties are at hand."""


class ISendMessageHook(Interface):
    """Around every send, a batch being one (SendMessageHook)."""

    def before_send(context: dict[str, Any]) -> None:
        """
        :param context: topic, queue_id, producer_group, born_host, body_size, properties: what
            the producer asked for. A hook may leave things of its own in it for `after_send`.
        :raises RequestRejected: the client gets its code and remark; nothing is stored. Any other
            exception is answered with code 1.
        """

    def after_send(context: dict[str, Any]) -> None:
        """
        The same dict with code, msg_id, queue_offset added; the last two None when not stored.

        What it raises is logged and does not change the answer.
        """


class IConsumeMessageHook(Interface):
    """Around every pull that found messages (ConsumeMessageHook)."""

    def before_consume(context: dict[str, Any]) -> None:
        """
        :param context: topic, queue_id, consumer_group, client_host, count, size.
        :raises RequestRejected: the client gets its code and remark.
        """


class IGrant(Interface):
    """What the account may that a request comes from."""

    account = Attribute("The access key.")
    owner = Attribute("The same where client ids belong to accounts; None: to who says so last.")

    def may_settle(group: str) -> bool:
        """It may see, commit and roll back the half messages of a producer group."""


class IAccessValidator(Interface):
    """Sees every request before its processor does (AccessValidator)."""

    def validate(request: Any, remote_address: str) -> None:
        """
        :param request: a `rmq_ha.base.wire.command.RemotingCommand`; its `security` tells of its
            connection, its `grant` may be set.
        :raises RequestRejected: the request is answered with that code and remark.
        """


class IAccessControl(IAccessValidator):
    """
    An access validator whose rules can be seen and changed (codes 50 to 54).

    What changes them returns a Deferred that fires when the change is on the disk and in force,
    and fails with `ConfigurationError`, whose text may go to the peer.
    """

    def start() -> None:
        """The broker serves: watch for changes of the rules. Not called when its start fails."""

    def stop() -> Any:
        """Watch no more. May return a Deferred."""

    def set_account(change: Any) -> Any:
        """:param change: a `rmq_ha.server.acl.accounts.AccountChange`."""

    def delete_account(access_key: str) -> Any:
        """Remove an account; fails when there is none."""

    def set_white_addresses(addresses: list[str], path: str | None) -> Any:
        """:param path: of the file whose list it is; None for the default one."""

    def versions() -> tuple[Any, dict[str, Any]]:
        """`DataVersion` of the default file, and of each file by its path."""

    def to_json() -> dict[str, Any]:
        """All rules, as code 54 answers."""


class IBrokerPlugin(IPlugin):
    """Anything that a broker's properties file can choose by name."""

    name = Attribute("What the properties file says; unique for its interface.")


class IMessageStorePlugin(IBrokerPlugin):
    """Chosen by `messageStorePlugIn`."""

    def wrap_store(broker: IBrokerContext, store: IMessageStore) -> IMessageStore:
        """
        Put another store around the one below.

        :raises ConfigurationError: the plugin's own options do not fit.
        """


class IJournalPlugin(IBrokerPlugin):
    """Chosen by `journalPlugIn`; built in: `classic`, `dledger`, `controller`."""

    def make_journal(broker: IBrokerContext) -> Any:
        """
        What keeps the broker's messages.

        :returns: a `rmq_ha.server.store.journal.Journal`: mostly a subclass of a built-in one, for
            example `rmq_ha.server.replication.classic.journal.ClassicJournal`, that changes it.
        :raises ConfigurationError: the plugin's own options do not fit, or the configuration does
            not.
        """


class IDispatcherPlugin(IBrokerPlugin):
    """Chosen by `dispatcherPlugIn`; comes after consume queue and index."""

    def make_dispatcher(broker: IBrokerContext) -> ICommitLogDispatcher:
        """
        One more dispatcher.

        :raises ConfigurationError: the plugin's own options do not fit.
        """


class IHookPlugin(IBrokerPlugin):
    """Chosen by `hookPlugIn`."""

    def make_hook(broker: IBrokerContext) -> Any:
        """
        An object that provides `ISendMessageHook`, `IConsumeMessageHook` or both.

        :raises ConfigurationError: the plugin's own options do not fit.
        """


class IAccessPlugin(IBrokerPlugin):
    """Chosen by `aclPlugIn`."""

    def make_validator(broker: IBrokerContext) -> IAccessValidator:
        """
        An access validator.

        :raises ConfigurationError: the plugin's own options do not fit.
        """
