"""Which settings no remote peer may change, whoever asks.

UPDATE_BROKER_CONFIG (25) and UPDATE_NAMESRV_CONFIG (318) write into the file that the next start
reads, so a key is as dangerous there as in the file.

Spec: remoting.md, sections 2.3 and 7.9.
"""

_REASONS = {
    "says where files are read and written": (
        "rocketmqHome storePathRootDir storePathCommitLog storePathDLedgerCommitLog "
        "readOnlyCommitLogStorePaths kvConfigPath configStorePath brokerConfigPath "
        "configStorePathName"
    ),
    "says where this server listens": (
        "listenPort haListenPort bindAddress embeddedNamesrvPort embeddedNamesrvAddress "
        "metricsPort metricsAddress enableControllerInNamesrv"
    ),
    "says where clients, slaves and masters are sent": (
        "brokerIP1 brokerIP2 namesrvAddr haMasterAddress fetchNamesrvAddrByAddressServer"
    ),
    "says who this broker is": "brokerName brokerClusterName brokerId brokerRole",
    "says which controllers this one belongs to": (
        "controllerDLegerGroup controllerDLegerPeers controllerDLegerSelfId controllerStorePath"
    ),
    "says which DLedger group this broker belongs to": (
        "enableDLegerCommitLog dLegerGroup dLegerPeers dLegerSelfId preferredLeaderId"
    ),
    "says who may do what": (
        "aclEnable aclStrict aclDirectory aclAccessKey aclSecretKey aclRequiresTls "
        "aclRequiresSignedTime aclSignedTimeWindow aclSignedSessions dLegerOperatorHosts "
        "controllerAllowedBrokers controllerOperatorHosts controllerOpenToAll "
        "dLegerPeerHosts haAllowedSlaves haSecret haSecretFile haSecretRequired "
        "haTrustedMasters haFirstOffsetMax haCutConfirmedTo namesrvAllowedBrokers "
        "namesrvBrokerTakeover namesrvLastRegistrationWins pageEnable pageToken metricsHostNames"
    ),
    "starts programs in some versions of RocketMQ": "filterServerNums",
}
_BY_KEY = {key: reason for reason, keys in _REASONS.items() for key in keys.split()}


def why_not_from_afar(key: str) -> str | None:
    """The reason why a peer may not change this setting; None where there is none."""
    reason = _BY_KEY.get(key)
    if reason is None and key.endswith("PlugIn"):
        reason = "says which code runs"
    if reason is None and key.startswith("tls."):
        reason = "says who may connect"
    if reason is None and "." in key.strip("."):
        reason = "belongs to a plugin"
    return reason


def refusal(keys: "list[str]") -> str | None:
    """
    What to answer a peer that wants to change these settings; None where it may.

    Keys that mean nothing to this server are refused, too: another version may read the file.
    """
    reasons = [(key, why_not_from_afar(key)) for key in sorted(keys)]
    refused = [f"{key} ({reason})" for key, reason in reasons if reason is not None]
    if not refused:
        return None
    return (
        f"{', '.join(refused)} can only be changed in the properties file of this server, with a "
        "restart; nothing was changed"
    )
