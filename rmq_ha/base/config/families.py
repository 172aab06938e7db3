"""Notes addresses of a family, IPv4 or IPv6, on which a server does not listen. Nobody could
connect to them.
"""

from collections.abc import Mapping

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.dledger_settings import parse_peers
from rmq_ha.base.config.settings import ConfigNotice, DoubtfulValue, Setting
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.model.networks import canonical


def note_family(
    setting: Setting | None,
    host: str,
    bound: str,
    surroundings: Surroundings,
    notices: list[ConfigNotice],
) -> None:
    """
    Note that others cannot reach this server at an address.

    :param setting: the setting that names the address; None: no setting does, and nothing is noted.
    :param host: the address by which others reach this server. A name is not checked.
    :param bound: the value of bindAddress.
    """
    address = canonical(host)
    if setting is None or address is None:
        return
    is_v6, listens_on_v6 = ":" in address, _is_v6(bound, surroundings)
    if listens_on_v6 is None or is_v6 == listens_on_v6:
        return
    family = "IPv6" if is_v6 else "IPv4"
    other = "IPv4" if is_v6 else "IPv6"
    cause = f"bindAddress={bound}" if bound else "this machine has no IPv6"
    cure = "leave bindAddress out, which listens on both" if bound else f"write one of {other}"
    notices.append(
        DoubtfulValue(
            f"{setting.where}: {setting.key}: {host} is an address of {family}, and this server "
            f"listens on {other} only ({cause}), so nobody can connect to it; {cure}"
        )
    )


def _is_v6(bound: str, surroundings: Surroundings) -> bool | None:
    """Return whether a server listens on IPv6 only; False: on IPv4 only; None: on both."""
    if bound in ("", "::"):
        return None if surroundings.has_ipv6 else False
    return ":" in bound


def note_families_of_broker(
    configuration: BrokerConfiguration,
    settings: Mapping[str, Setting],
    surroundings: Surroundings,
    notices: list[ConfigNotice],
) -> None:
    """Check the addresses that a broker tells clients, slaves and the members of its group."""
    broker, store = configuration.broker, configuration.store
    bound = configuration.ours.bind_address
    hosts = {"brokerIP1": broker.broker_ip1 or "", "brokerIP2": broker.broker_ip2 or ""}
    if store.enable_dleger_commit_log:
        hosts["dLegerPeers"] = own_peer(store.dleger_peers or "", store.dleger_self_id or "")
    for key, host in hosts.items():
        note_family(settings.get(key), host, bound, surroundings, notices)
    if surroundings.has_ipv6:
        return
    for key in configuration.dialled_addresses():
        setting = settings.get(key)
        if setting is not None and "[" in setting.value:
            notices.append(
                DoubtfulValue(
                    f"{setting.where}: {key}={setting.value}: this machine has no IPv6, so it "
                    "cannot connect to an address of IPv6"
                )
            )


def own_peer(peers: str, self_id: str) -> str:
    """Return the host of a member's own entry; empty: the member has none."""
    try:
        address = parse_peers(peers).get(self_id, "")
    except ConfigurationError:
        return ""  # which is said elsewhere
    return host_of(address)
