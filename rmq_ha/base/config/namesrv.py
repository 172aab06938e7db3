"""NamesrvConfig: the keys of a name server properties file.

Spec: store.md, section 13.
"""

from dataclasses import dataclass

from rmq_ha.base.config.every_server import EveryServerConfig
from rmq_ha.base.config.fields import Local, key, key_of_5, own_key
from rmq_ha.base.config.text_rules import NETWORKS


@dataclass(slots=True, kw_only=True)
class NamesrvConfig(EveryServerConfig):
    """The keys of a name server."""

    rocketmq_home: str | None = key(
        "rocketmqHome",
        None,
        "installation directory; plain_acl.yml is expected below it",
        local=Local.FILES,
    )
    kv_config_path: str | None = key(
        "kvConfigPath",
        None,
        "file of the key-value settings; empty: namesrv/kvConfig.json in the home directory",
        local=Local.FILES,
    )
    config_store_path: str | None = key(
        "configStorePath",
        None,
        "file that updateNamesrvConfig changes; empty: the properties file",
        local=Local.FILES,
    )
    order_message_enable: bool = key(
        "orderMessageEnable",
        False,
        "tell clients the configuration of ordered topics",
        mutable=True,
    )
    delete_topic_with_broker_registration: bool = key_of_5(
        "deleteTopicWithBrokerRegistration",
        True,
        "a broker leaves the route of a topic that it no longer registers, as in RocketMQ 5 "
        "with this key; false: it stays there until name servers are told, as in RocketMQ 4.9",
        mutable=True,
    )
    keep_wiped_write_perm: bool = own_key(
        "keepWipedWritePerm",
        True,
        "wipeWritePerm lasts until addWritePerm, over registrations and restarts; false: "
        "until the broker registers changed topics or comes back, as in RocketMQ",
        mutable=True,
    )
    enable_controller_in_namesrv: bool = key_of_5(
        "enableControllerInNamesrv",
        False,
        "run a controller in this process, on the own port of controllerDLegerPeers; a "
        "controller's keys stand beside these",
        local=Local.LISTENS,
    )
    max_registration_bytes: int = own_key(
        "maxRegistrationBytes",
        4194304,
        "bytes that a compressed registration may become",
        least=4096,
        mutable=True,
    )
    max_topics_of_broker: int = own_key(
        "maxTopicsOfBroker",
        50000,
        "topics in one registration; more are refused",
        least=1,
        mutable=True,
    )
    max_topic_routes: int = own_key(
        "maxTopicRoutes",
        500000,
        "pairs of topic and broker name in all; a registration that makes it more is refused",
        least=1,
        mutable=True,
    )
    namesrv_allowed_brokers: str = own_key(
        "namesrvAllowedBrokers",
        "",
        "addresses and networks, comma-separated, from which brokers register and unregister; "
        "empty: from everywhere, as RocketMQ",
        rule=NETWORKS,
        local=Local.ACCESS,
    )
    namesrv_broker_takeover: bool = own_key(
        "namesrvBrokerTakeover",
        True,
        "another machine may take over name and id of a broker that is connected still, as in "
        "RocketMQ; false: only once that connection is gone, or it was silent for 120 s",
        local=Local.ACCESS,
    )
    namesrv_last_registration_wins: bool = own_key(
        "namesrvLastRegistrationWins",
        False,
        "a brokerName and brokerId belong to whoever registered last, as in RocketMQ 4.9; "
        "false: the higher epoch gets them, and an address that lost id 0 to a broker that "
        "lives does not get it back meanwhile",
        local=Local.ACCESS,
    )
    acl_enable: bool = own_key(
        "aclEnable",
        False,
        "registrations (unless namesrvAllowedBrokers is set) and what changes or shows "
        "settings need an admin's signature, by plain_acl.yml",
        local=Local.ACCESS,
        same_in_set=True,
    )
