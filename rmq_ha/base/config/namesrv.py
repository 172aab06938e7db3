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
        "The installation directory. The name server looks for conf/plain_acl.yml below it.",
        local=Local.FILES,
    )
    kv_config_path: str | None = key(
        "kvConfigPath",
        None,
        "The file of the key-value settings. Empty: namesrv/kvConfig.json in the home directory "
        "of the user.",
        local=Local.FILES,
    )
    config_store_path: str | None = key(
        "configStorePath",
        None,
        "The file that mqadmin updateNamesrvConfig changes. Empty: the properties file.",
        local=Local.FILES,
    )
    order_message_enable: bool = key(
        "orderMessageEnable",
        False,
        "true: the answer to a client's request for a route has the configuration of ordered "
        "topics.",
        mutable=True,
    )
    delete_topic_with_broker_registration: bool = key_of_5(
        "deleteTopicWithBrokerRegistration",
        True,
        "true, as RocketMQ 5 with this key: if a broker registers without a topic, it leaves "
        "that topic's route. false, as RocketMQ 4.9: it stays in the route until an operator "
        "deletes the topic at the name servers.",
        mutable=True,
    )
    keep_wiped_write_perm: bool = own_key(
        "keepWipedWritePerm",
        True,
        "true: wipeWritePerm lasts until addWritePerm, also after registrations and restarts. "
        "false, as RocketMQ: it ends when the broker registers changed topics or comes back.",
        mutable=True,
    )
    enable_controller_in_namesrv: bool = key_of_5(
        "enableControllerInNamesrv",
        False,
        "true: run a controller in this process. It listens on its own port in "
        "controllerDLegerPeers, and its keys are in the same properties file.",
        local=Local.LISTENS,
    )
    max_registration_bytes: int = own_key(
        "maxRegistrationBytes",
        4194304,
        "The most bytes of a compressed registration after it is decompressed. A larger one is "
        "refused.",
        least=4096,
        mutable=True,
    )
    max_topics_of_broker: int = own_key(
        "maxTopicsOfBroker",
        50000,
        "The most topics in one registration. A larger one is refused.",
        least=1,
        mutable=True,
    )
    max_topic_routes: int = own_key(
        "maxTopicRoutes",
        500000,
        "The most pairs of topic and broker name in all. A registration that would exceed it is "
        "refused.",
        least=1,
        mutable=True,
    )
    namesrv_allowed_brokers: str = own_key(
        "namesrvAllowedBrokers",
        "",
        "The addresses and networks, separated by commas, from which brokers may register and "
        "unregister. Empty, as RocketMQ: every address.",
        rule=NETWORKS,
        local=Local.ACCESS,
    )
    namesrv_broker_takeover: bool = own_key(
        "namesrvBrokerTakeover",
        True,
        "true, as RocketMQ: another machine may register with the name and id of a broker that "
        "is still connected. false: it may do so only when that connection is closed or was "
        "silent for 120 s, so a fail-over can take that long.",
        local=Local.ACCESS,
    )
    namesrv_last_registration_wins: bool = own_key(
        "namesrvLastRegistrationWins",
        False,
        "What happens if two brokers register with one brokerName and brokerId. false: the "
        "broker with the higher epoch keeps the id; without epochs the newcomer gets it, and "
        "the other one does not get it back while the newcomer lives. true, as RocketMQ 4.9: "
        "the last registration gets it each time.",
        local=Local.ACCESS,
    )
    acl_enable: bool = own_key(
        "aclEnable",
        False,
        "true: requests that change or show settings need the signature of an admin in "
        "plain_acl.yml, and so do registrations, unless namesrvAllowedBrokers is set.",
        local=Local.ACCESS,
        same_in_set=True,
    )
