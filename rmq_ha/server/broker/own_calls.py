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
    Return the TLS rules for connections that this broker opens itself.

    :param read_bytes: reads a file.
    :param now_ms: returns ms since the epoch.
    :raises ConfigurationError: the settings do not fit together; or `aclRequiresTls` demands TLS of
        all who sign, and this broker signs without TLS.
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
    """
    Return `calls` itself or, if the broker's own account is configured, an object that signs each
    request and sends it through `calls`.
    """
    own = configuration.ours
    if not own.acl_access_key:
        return calls
    credentials = Credentials(own.acl_access_key, own.acl_secret_key)
    return SigningCalls(calls, RequestSigner(credentials, SignedTimes(host.now_ms, host.random)))
