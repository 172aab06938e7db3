"""The extension points, as plugins import them; `rmq_ha.base.interfaces` describes each."""

from rmq_ha.base.interfaces import (
    IAccessControl,
    IAccessPlugin,
    IAccessValidator,
    IBrokerContext,
    IBrokerPlugin,
    ICallAccess,
    ICommitLogDispatcher,
    IConsumeMessageHook,
    IDispatcherPlugin,
    IGrant,
    IHookPlugin,
    IJournalPlugin,
    IMessageFilter,
    IMessageStore,
    IMessageStorePlugin,
    ISendMessageHook,
)

__all__ = [
    "IAccessControl",
    "IAccessPlugin",
    "IAccessValidator",
    "IBrokerContext",
    "IBrokerPlugin",
    "ICallAccess",
    "ICommitLogDispatcher",
    "IConsumeMessageHook",
    "IDispatcherPlugin",
    "IGrant",
    "IHookPlugin",
    "IJournalPlugin",
    "IMessageFilter",
    "IMessageStore",
    "IMessageStorePlugin",
    "ISendMessageHook",
]
