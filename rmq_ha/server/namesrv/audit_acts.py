"""The texts of a name server's audit log for requests that change something."""

from collections.abc import Mapping

from rmq_ha.base.remoting.audit import Describe, by_header, changed_configuration
from rmq_ha.base.wire.codes import RequestCode

ACTS: Mapping[int, Describe] = {
    RequestCode.PUT_KV_CONFIG: by_header("set", "kv", "key", "namespace", "value"),
    RequestCode.DELETE_KV_CONFIG: by_header("deleted", "kv", "key", "namespace"),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: by_header("wiped", "write permission", "brokerName"),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: by_header("gave back", "write permission", "brokerName"),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: by_header("deleted", "route", "topic", "clusterName"),
    RequestCode.UPDATE_NAMESRV_CONFIG: changed_configuration,
}
