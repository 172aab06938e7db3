"""This broker's own requests to name servers and its master, with or without TLS and signatures."""

from collections.abc import Callable

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.remoting.calls import Calls
from rmq_ha.base.remoting.signing import Credentials, RequestSigner, SignedTimes, SigningCalls
from rmq_ha.base.seams import Host
from rmq_ha.base.tls.client import ClientTls
from rmq_ha.base.tls.options import ReadBytes


def own_tls(
    configuration: BrokerConfiguration, read_bytes: ReadBytes, now_ms: Callable[[], int]
) -> ClientTls:
    """
    Return the TLS rules for this broker's own connections.

    :param read_bytes: reads a file.
    :param now_ms: ms since the epoch.
    :raises ConfigurationError: the settings do not fit. Or the broker demands TLS of others that
        sign (`aclRequiresTls`), signs itself, and would not use TLS.
    """
    own = configuration.ours
    is_demanded = own.acl_requires_tls and own.acl_access_key
    return ClientTls(
        configuration.plugin_options,
        read_bytes,
        now_ms,
        enabled=configuration.client.use_tls,
        demanded_by="aclRequiresTls=true" if is_demanded else "",
    )


def signed(calls: Calls, host: Host, configuration: BrokerConfiguration) -> Calls:
    """Return the same calls, with signatures if an account is configured."""
    own = configuration.ours
    if not own.acl_access_key:
        return calls
    credentials = Credentials(own.acl_access_key, own.acl_secret_key)
    return SigningCalls(calls, RequestSigner(credentials, SignedTimes(host.now_ms, host.random)))
