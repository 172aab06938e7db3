"""The extension points of rmq-ha.

A plugin is an object in `twisted.plugins` that provides one of the `I...Plugin` interfaces; the
properties file chooses it by its `name`. Built-in parts and extensions use the same interfaces.
Plugins get an `IBrokerContext`, never the `Broker` itself.
"""

from typing import Any

from twisted.plugin import IPlugin
from zope.interface import Attribute, Interface


class IBrokerContext(Interface):
    """The view that a plugin has of its broker."""

    host = Attribute("`rmq_ha.base.seams.Host`: clock, disk, worker, network, random.")
    configuration = Attribute("`rmq_ha.base.config.broker_configuration.BrokerConfiguration`.")

    def option(name: str, default: str | None = None) -> str | None:
        """
        Return a setting of the plugin from the properties file.

        :param name: `<plugin name>.<key>`.
        """

    def record_starting_at(physical_offset: int) -> bytes | None:
        """
        Return the record that starts at a physical offset; None if none does. The broker must run.

        :raises StoreError: the disk cannot be read.
        """


class ICommitLogDispatcher(Interface):
    """Gets every record once it is in the log (RocketMQ's CommitLogDispatcher)."""

    def dispatch(requests: list[Any]) -> None:
        """
        Take records of the log.

        :param requests: a list of `rmq_ha.base.model.message.DispatchRequest`, in log order. After
            an abnormal stop the last requests may come again.
        """


class IMessageStore(Interface):
    """
    A store that puts and gets messages. `IMessageStorePlugin` wraps one store in another, as
    RocketMQ's AbstractPluginMessageStore does.

    Spec: store.md, sections 2.7 and 8.
    """

    def put_message(message: Any) -> Any:
        """
        :param message: a `rmq_ha.base.model.message.Message`.
        :returns: a Deferred that fires with a `PutMessageResult` and never fails.
        """

    def put_batch(batch: Any) -> Any:
        """Put a `MessageBatch`; see `put_message`."""

    def get_message(
        group: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_nums: int,
        message_filter: Any,
    ) -> Any:
        """
        Read messages of one queue, in order.

        :param group: the consumer group that reads.
        :param queue_offset: the number in the queue of the first message to read.
        :param max_nums: most messages to return.
        :param message_filter: an `IMessageFilter` that chooses the messages; None: all of them.
        :returns: a `GetMessageResult`, or None when the store cannot be read.
        """


class IMessageFilter(Interface):
    """Decides which messages a pull returns. Spec: store.md, section 8.3."""

    def matches_unit(tags_code: int) -> bool:
        """Decide by the tag code in the consume queue's unit alone."""

    def matches_extension(tags_code: int, store_timestamp: int, bit_map: bytes | None) -> bool:
        """
        Decide by the fields of the consume queue's extension.

        :param bit_map: the SQL92 filters that the message matched, as far as they are older than
            the message.
        """

    def matches_record(record: bytes) -> bool:
        """Decide by the whole record; called only if the unit matched."""

    def matches_properties(properties: dict[str, str]) -> bool:
        """Decide as `matches_record` does, for a new message whose properties are known."""


class ISendMessageHook(Interface):
    """A hook around every send; a batch is one send (RocketMQ's SendMessageHook)."""

    def before_send(context: dict[str, Any]) -> None:
        """
        See a message before it is stored, and perhaps refuse it.

        :param context: the producer's request: topic, queue_id, producer_group, born_host,
            body_size and properties. A hook may add values of its own for `after_send`.
        :raises RequestRejected: the client gets its code and remark; nothing is stored. Any other
            exception is answered with code 1.
        """

    def after_send(context: dict[str, Any]) -> None:
        """
        See the result of the send. An exception is logged and does not change the answer.

        :param context: the dict of `before_send` with code, msg_id and queue_offset; the last two
            are None if the message is not stored.
        """


class IConsumeMessageHook(Interface):
    """A hook of every pull that found messages (RocketMQ's ConsumeMessageHook)."""

    def before_consume(context: dict[str, Any]) -> None:
        """
        :param context: topic, queue_id, consumer_group, client_host, count, size.
        :raises RequestRejected: the client gets its code and remark.
        """


class IGrant(Interface):
    """The rights of the account that signed a request."""

    account = Attribute("The access key.")
    owner = Attribute("The same where client ids belong to accounts; None: to who says so last.")

    def may_settle(group: str) -> bool:
        """Whether the account may see, commit and roll back a producer group's half messages."""


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

    Methods that change rules return a Deferred. It fires when the change is on the disk and in
    force, and fails with `ConfigurationError`, whose text may go to the peer.
    """

    def start() -> None:
        """
        Begin to watch for changes of the rules, because the broker serves now. This is not called
        if the broker's start fails.
        """

    def stop() -> Any:
        """Stop watching for changes of the rules. May return a Deferred."""

    def set_account(change: Any) -> Any:
        """:param change: a `rmq_ha.server.acl.accounts.AccountChange`."""

    def delete_account(access_key: str) -> Any:
        """Remove an account; fails if the account does not exist."""

    def set_white_addresses(addresses: list[str], path: str | None) -> Any:
        """:param path: the file whose addresses are set; None for the default file."""

    def versions() -> tuple[Any, dict[str, Any]]:
        """Return the `DataVersion` of the default file, and those of all files by their paths."""

    def to_json() -> dict[str, Any]:
        """Return all rules in the form that request code 54 answers."""


class ICallAccess(Interface):
    """
    An access validator that also checks the calls of the gRPC door. A broker whose validators do
    not all provide this does not open that door.
    """

    def admit(caller: Any, needs: Any) -> Any:
        """
        :param caller: a `rmq_ha.server.door.Caller`.
        :param needs: pairs of a resource and a permission; see `rmq_ha.server.acl.permissions`.
        :returns: an `IGrant`; None: this address needs no account.
        :raises RequestRejected: the call is refused.
        """


class IBrokerPlugin(IPlugin):
    """The base of all plugins that a broker's properties file can choose by name."""

    name = Attribute("What the properties file says; unique for its interface.")


class IMessageStorePlugin(IBrokerPlugin):
    """A plugin that the key `messageStorePlugIn` names."""

    def wrap_store(broker: IBrokerContext, store: IMessageStore) -> IMessageStore:
        """
        Put another store around the one below.

        :raises ConfigurationError: the plugin's own options do not fit.
        """


class IJournalPlugin(IBrokerPlugin):
    """
    A plugin that the key `journalPlugIn` names. `classic`, `dledger` and `controller` are built in.
    """

    def make_journal(broker: IBrokerContext) -> Any:
        """
        Make the journal, which keeps the broker's messages.

        :returns: a `rmq_ha.server.store.journal.Journal`: mostly a subclass of a built-in journal,
            for example of `rmq_ha.server.replication.classic.journal.ClassicJournal`.
        :raises ConfigurationError: the plugin's options or the broker's settings are not valid.
        """


class IDispatcherPlugin(IBrokerPlugin):
    """A plugin that the key `dispatcherPlugIn` names. Its dispatcher gets each record after the
    consume queues and the index have it."""

    def make_dispatcher(broker: IBrokerContext) -> ICommitLogDispatcher:
        """
        Make a dispatcher in addition to the built-in ones.

        :raises ConfigurationError: the plugin's own options do not fit.
        """


class IHookPlugin(IBrokerPlugin):
    """A plugin that the key `hookPlugIn` names."""

    def make_hook(broker: IBrokerContext) -> Any:
        """
        Make an object that provides `ISendMessageHook`, `IConsumeMessageHook` or both.

        :raises ConfigurationError: the plugin's own options do not fit.
        """


class IAccessPlugin(IBrokerPlugin):
    """A plugin that the key `aclPlugIn` names."""

    def make_validator(broker: IBrokerContext) -> IAccessValidator:
        """
        Make an access validator.

        :raises ConfigurationError: the plugin's own options do not fit.
        """
