"""Decides who may register brokers at a name server, and who may administer the name server.

RocketMQ 4.9 checks neither: anyone who reaches the port may do both.
"""

from twisted.logger import Logger
from zope.interface import implementer

from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.errors import ConfigurationError, RequestRejected
from rmq_ha.base.interfaces import IAccessValidator
from rmq_ha.base.model.host_port import host_of
from rmq_ha.base.model.networks import Networks
from rmq_ha.base.seams import Host
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.acl.freshness import AclKeys
from rmq_ha.server.acl.grant import Grant
from rmq_ha.server.acl.service import PlainAccessControl

OF_BROKERS = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.QUERY_DATA_VERSION,
    }
)
OF_ADMINS = frozenset(
    {
        RequestCode.PUT_KV_CONFIG,
        RequestCode.GET_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG,
    }
)


@implementer(IAccessValidator)
class BrokerAddresses:
    """
    Accepts the requests of `OF_BROKERS` only from the addresses in `namesrvAllowedBrokers`.

    :ivar refused: number of such requests from other addresses.
    """

    log = Logger()

    def __init__(self, host: Host, allowed: Networks) -> None:
        """:param allowed: the accepted addresses; empty: all."""
        self._allowed = allowed
        self._refusals = Refusals(host.clock)
        self.refused = 0

    def validate(self, request: RemotingCommand, remote_address: str) -> None:
        """
        Check the address of a request, if its code is one of `OF_BROKERS`.

        :raises RequestRejected: the address is not accepted.
        """
        if not self._allowed or request.code not in OF_BROKERS:
            return
        host = host_of(remote_address)
        if host in self._allowed:
            return
        self.refused += 1
        name = (request.ext or {}).get("brokerName", "")[:100]
        more = self._refusals.admit(host, "namesrvAllowedBrokers")
        if more is not None:
            self.log.warn(
                "{peer} refused, which speaks for broker {name!r}: it is not in "
                "namesrvAllowedBrokers={allowed}{more}",
                peer=remote_address,
                name=name,
                allowed=self._allowed.text,
                more=more,
            )
        raise RequestRejected(
            ResponseCode.NO_PERMISSION,
            f"{host} may not register brokers here; add it to namesrvAllowedBrokers of this name "
            "server if it is one's",
        )


class NamesrvAccess(PlainAccessControl):
    """
    Requires that an administrator sends some requests, by the rules of the ACL files. A signature
    or a client certificate names the account; addresses of the global white list need none.

    `make_access` chooses the codes of these requests. Those of `OF_ADMINS` change the name server's
    data, or read its settings and its key-value store. If `namesrvAllowedBrokers` is empty, those
    of `OF_BROKERS` are checked too. All other requests, such as clients' questions for routes, need
    no signature.

    Java's brokers cannot sign. `namesrvAllowedBrokers` or `globalWhiteRemoteAddresses` has to let
    them in.

    :param directory: directory with `plain_acl.yml` and the folder `acl`.
    :param codes: the request codes that need an administrator.
    :param keys: settings of signed requests.
    :raises ConfigurationError: an ACL file cannot be used, or there is none.
    """

    def __init__(self, host: Host, directory: str, codes: frozenset[int], keys: AclKeys) -> None:
        super().__init__(
            host,
            directory,
            strict=True,
            reply_topic="",
            record_at=lambda physical_offset: None,
            keys=keys,
        )
        self._codes = codes

    def _check(self, request: RemotingCommand, host: str) -> Grant | None:
        if request.code not in self._codes:
            return None
        return self._rules.check_administrator(request, host)


def make_access(host: Host, config: NamesrvConfig, allowed: Networks) -> NamesrvAccess | None:
    """
    Make the access control that `aclEnable` asks for; None without it.

    :raises ConfigurationError: the ACL files cannot be used, or are missing.
    """
    if not config.acl_enable:
        return None
    if config.acl_directory is None:
        raise ConfigurationError("aclEnable=true: set aclDirectory to where plain_acl.yml is")
    codes = OF_ADMINS if allowed else OF_ADMINS | OF_BROKERS
    return NamesrvAccess(host, config.acl_directory, codes, config)
