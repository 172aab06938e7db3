"""NamesrvConfig: the keys of a name server properties file.

Spec: store.md, section 13.
"""

from dataclasses import dataclass

from rmq_ha.config.fields import key


@dataclass(slots=True, kw_only=True)
class NamesrvConfig:
    """The keys of a name server."""

    rocketmq_home: str | None = key("rocketmqHome", None, "required")
    kv_config_path: str | None = key("kvConfigPath", None, "kvConfigPath")
    config_store_path: str | None = key("configStorePath", None, "configStorePath")
    product_env_name: str = key("productEnvName", "center", "productEnvName")
    cluster_test: bool = key("clusterTest", False, "clusterTest")
    order_message_enable: bool = key(
        "orderMessageEnable", False, "answer ordered-topic configuration"
    )
    bind_address: str = key(
        "bindAddress", "", "ours: interface to listen on; empty: all, as the Java name server does"
    )
