"""Answers the name server's requests about its key-value store and its configuration.

Spec: remoting.md, sections 2.3 and 9.6.
"""

from typing import Any

from rmq_ha.base.errors import ConfigurationError, RequestRejected
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.namesrv.answers import Answer, Handler, required, when_written
from rmq_ha.server.namesrv.kv_config import KVConfigManager
from rmq_ha.server.namesrv.settings import NamesrvSettings


class ConfigProcessor:
    """Answers requests about the key-value store and the name server's own configuration."""

    def __init__(self, kv_config: KVConfigManager, settings: NamesrvSettings) -> None:
        self._kv_config = kv_config
        self._settings = settings

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.PUT_KV_CONFIG: self.put,
            RequestCode.GET_KV_CONFIG: self.get,
            RequestCode.DELETE_KV_CONFIG: self.delete,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.namespace,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update,
            RequestCode.GET_NAMESRV_CONFIG: self.show,
        }

    def put(self, _: Any, request: RemotingCommand) -> Answer:
        """Answer PUT_KV_CONFIG (100): store a value."""
        namespace, key = required(request, "namespace"), required(request, "key")
        written = self._kv_config.put(namespace, key, required(request, "value"))
        return when_written(request, written, self._kv_config.path)

    def get(self, _: Any, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_KV_CONFIG (101) with a value."""
        namespace, key = required(request, "namespace"), required(request, "key")
        value = self._kv_config.get(namespace, key)
        if value is None:
            return request.response(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}"
            )
        return request.response(ext={"value": value})

    def delete(self, _: Any, request: RemotingCommand) -> Answer:
        """Answer DELETE_KV_CONFIG (102): forget a value."""
        ext = request.ext or {}
        written = self._kv_config.delete(ext.get("namespace", ""), ext.get("key", ""))
        return when_written(request, written, self._kv_config.path)

    def namespace(self, _: Any, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_KVLIST_BY_NAMESPACE (219) with all keys and values of a namespace."""
        namespace = required(request, "namespace")
        table = self._kv_config.namespace(namespace)
        if table is None:
            return request.response(
                ResponseCode.QUERY_NOT_FOUND, f"there is no namespace {namespace}"
            )
        return request.response(body=fastjson.encode({"table": table}))

    def update(self, _: Any, request: RemotingCommand) -> Answer:
        """Answer UPDATE_NAMESRV_CONFIG (318): change the configuration."""
        if not request.body:
            return request.response()
        try:
            written = self._settings.update(request.body.decode("utf-8", "replace"))
        except ConfigurationError as error:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return when_written(request, written, self._settings.file.path or "")

    def show(self, _: Any, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_NAMESRV_CONFIG (319) with the configuration."""
        return request.response(body=self._settings.render().encode())
