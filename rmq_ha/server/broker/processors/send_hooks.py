"""Calls the hooks of plugins around a send.

Spec: remoting.md, chapter 4 (SendMessageHook).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from twisted.logger import Logger

from rmq_ha.base.interfaces import IMessageStore, ISendMessageHook
from rmq_ha.base.model.properties import decode_properties
from rmq_ha.base.wire.send_header import SendHeader
from rmq_ha.server.door import MessageSender


class SendPlugins(NamedTuple):
    """
    The plugins that see each message that is sent.

    :ivar front: stores messages: the store, wrapped by the plugins.
    """

    front: IMessageStore
    hooks: "SendHooks"


class SendHooks:
    """
    The send hooks of a broker, in their order. The object is false if there are no hooks.

    :param hooks: hooks of any kind; those that do not provide `ISendMessageHook` are left out.
    """

    log = Logger()

    def __init__(self, hooks: Sequence[Any]) -> None:
        self._hooks = [hook for hook in hooks if ISendMessageHook.providedBy(hook)]

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def before_send(self, sender: MessageSender, header: SendHeader, body: bytes) -> dict[str, Any]:
        """
        Show the hooks a message before it is stored.

        :returns: the context for `after_send`.
        :raises RequestRejected: a hook refuses.
        """
        if not self._hooks:
            return {}
        context: dict[str, Any] = {
            "topic": header.topic,
            "queue_id": header.queue_id,
            "producer_group": header.producer_group,
            "born_host": sender.remote_text,
            "body_size": len(body),
            "properties": decode_properties(header.properties),
        }
        for hook in self._hooks:
            hook.before_send(context)
        return context

    def after_send(self, context: dict[str, Any], code: int, fields: Mapping[str, str]) -> None:
        """
        Show the hooks the answer.

        :param fields: the ext fields of remoting's answer.

        An error of a hook does not change the answer, since the message is stored or refused
        already.
        """
        if not self._hooks:
            return
        context["code"] = code
        context["msg_id"], context["queue_offset"] = fields.get("msgId"), fields.get("queueOffset")
        for hook in self._hooks:
            try:
                hook.after_send(context)
            except Exception:
                self.log.failure(
                    "send hook {hook} failed after a send", hook=type(hook).__qualname__
                )
