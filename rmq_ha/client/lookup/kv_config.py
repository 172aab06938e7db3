"""Requests about a name server's keys and values, its settings, and brokers' write permission.

Spec: remoting.md, sections 2.3 and 9.6.
"""

from collections.abc import Mapping

from rmq_ha.base.config import properties
from rmq_ha.base.wire.bodies import read_body
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.asking import Ask, Asking, expect, number


def kv_of(name_server: str, namespace: str) -> Asking[dict[str, str]]:
    """
    Ask a name server for all keys of a namespace; empty if the namespace has none.

    :raises BrokerRefused: the name server refuses.
    :raises RemotingError: the name server does not answer.
    """
    command = RemotingCommand(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": namespace})
    response = yield from expect(Ask(command, name_server), (ResponseCode.QUERY_NOT_FOUND,))
    if response.code:
        return {}
    return read_body(
        response.body or b"{}",
        lambda value: {str(key): str(text) for key, text in (value.get("table") or {}).items()},
        None,
    )


def put_kv(name_server: str, namespace: str, key: str, value: str) -> Asking[None]:
    """Set a key of a namespace; raises as `kv_of` does."""
    ext = {"namespace": namespace, "key": key, "value": value}
    yield from expect(Ask(RemotingCommand(RequestCode.PUT_KV_CONFIG, ext), name_server))


def delete_kv(name_server: str, namespace: str, key: str) -> Asking[None]:
    """Delete a key of a namespace; raises as `kv_of` does."""
    ext = {"namespace": namespace, "key": key}
    yield from expect(Ask(RemotingCommand(RequestCode.DELETE_KV_CONFIG, ext), name_server))


def set_writes(name_server: str, broker_name: str, *, allowed: bool) -> Asking[int]:
    """
    Let producers send to a broker, or forbid it to all producers. A name server of rmq-ha keeps
    that over the broker's registrations (`keepWipedWritePerm`); one of RocketMQ forgets it when the
    broker registers changed topics.

    :param allowed: whether producers may send to the broker.
    :returns: how many topics have changed routes.
    :raises BrokerRefused: the name server refuses.
    """
    code = (
        RequestCode.ADD_WRITE_PERM_OF_BROKER if allowed else RequestCode.WIPE_WRITE_PERM_OF_BROKER
    )
    command = RemotingCommand(code, {"brokerName": broker_name})
    response = yield from expect(Ask(command, name_server))
    return number(response, "addTopicCount" if allowed else "wipeTopicCount", name_server)


def namesrv_config(name_server: str) -> Asking[dict[str, str]]:
    """Ask for a name server's settings; raises as `kv_of` does."""
    response = yield from expect(Ask(RemotingCommand(RequestCode.GET_NAMESRV_CONFIG), name_server))
    text = (response.body or b"").decode("utf-8", "replace")
    return {item.key: item.value for item in properties.parse(text)}


def change_namesrv_config(name_server: str, changes: Mapping[str, str]) -> Asking[None]:
    """Change settings of a running name server, and in its file; raises as `kv_of` does."""
    body = properties.format_properties(changes.items()).encode()
    command = RemotingCommand(RequestCode.UPDATE_NAMESRV_CONFIG, None, body)
    yield from expect(Ask(command, name_server))
