"""A name server's keys and values, its settings, and whom it sends writers to.

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
    All keys of a namespace on one name server; empty when it has none.

    :raises BrokerRefused: it does not tell.
    :raises RemotingError: it does not answer.
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
    """Raises as `kv_of`."""
    ext = {"namespace": namespace, "key": key, "value": value}
    yield from expect(Ask(RemotingCommand(RequestCode.PUT_KV_CONFIG, ext), name_server))


def delete_kv(name_server: str, namespace: str, key: str) -> Asking[None]:
    """Raises as `kv_of`."""
    ext = {"namespace": namespace, "key": key}
    yield from expect(Ask(RemotingCommand(RequestCode.DELETE_KV_CONFIG, ext), name_server))


def set_writes(name_server: str, broker_name: str, *, allowed: bool) -> Asking[int]:
    """
    Send writers to a broker, or none any more; its next registration undoes neither.

    :returns: of how many topics that changed the routes.
    :raises BrokerRefused: as `kv_of`.
    """
    code = (
        RequestCode.ADD_WRITE_PERM_OF_BROKER if allowed else RequestCode.WIPE_WRITE_PERM_OF_BROKER
    )
    command = RemotingCommand(code, {"brokerName": broker_name})
    response = yield from expect(Ask(command, name_server))
    return number(response, "addTopicCount" if allowed else "wipeTopicCount", name_server)


def namesrv_config(name_server: str) -> Asking[dict[str, str]]:
    """What it runs with; raises as `kv_of`."""
    response = yield from expect(Ask(RemotingCommand(RequestCode.GET_NAMESRV_CONFIG), name_server))
    text = (response.body or b"").decode("utf-8", "replace")
    return {item.key: item.value for item in properties.parse(text)}


def change_namesrv_config(name_server: str, changes: Mapping[str, str]) -> Asking[None]:
    """Of one that runs, and in its file; raises as `kv_of`."""
    body = properties.format_properties(changes.items()).encode()
    command = RemotingCommand(RequestCode.UPDATE_NAMESRV_CONFIG, None, body)
    yield from expect(Ask(command, name_server))
