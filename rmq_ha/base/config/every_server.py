"""The keys of rmq-ha that each server reads: its status port, its addresses, its log."""

from dataclasses import dataclass

from rmq_ha.base.config.fields import Local, own_key
from rmq_ha.base.config.log_format import LogFormat
from rmq_ha.base.config.log_level import LogThreshold
from rmq_ha.base.config.text_rules import SECRET
from rmq_ha.base.model.host_port import MOST_PORT


@dataclass(slots=True, kw_only=True)
class EveryServerConfig:
    """Keys that brokers, name servers and controllers share; RocketMQ ignores them."""

    bind_address: str = own_key(
        "bindAddress",
        "",
        "interface to listen on; empty: all of IPv4 and IPv6, as RocketMQ",
        local=Local.LISTENS,
        resolved=True,
    )
    acl_directory: str | None = own_key(
        "aclDirectory",
        None,
        "folder of plain_acl.yml and the folder acl; empty: rocketmqHome/conf, or the folder "
        "of this file",
        local=Local.ACCESS,
    )
    acl_requires_tls: bool = own_key(
        "aclRequiresTls",
        False,
        "refuse signed requests that come by plain TCP, where others can record them; this "
        "server's own requests are then signed over verified TLS only",
        local=Local.ACCESS,
    )
    acl_requires_signed_time: bool = own_key(
        "aclRequiresSignedTime",
        False,
        "take only signatures that cover code, time and number of a request, as clients and "
        "brokers of rmq-ha make them; false: also 4.9's, which can be used again",
        local=Local.ACCESS,
    )
    acl_signed_time_window: int = own_key(
        "aclSignedTimeWindow",
        300,
        "seconds by which the time of a signed request may differ from this server's clock "
        "where aclRequiresSignedTime=true; else a larger difference is logged only",
        least=1,
        most=86400,
        local=Local.ACCESS,
    )
    acl_signed_sessions: int = own_key(
        "aclSignedSessions",
        10000,
        "clients' sessions of one account that are remembered, so that none of their requests "
        "is taken twice; of more, the requests of the one used longest ago are refused",
        least=1,
        local=Local.ACCESS,
    )
    metrics_port: int = own_key(
        "metricsPort",
        0,
        "serve /metrics (Prometheus) and /healthz over HTTP here; 0: do not",
        most=MOST_PORT,
        local=Local.LISTENS,
    )
    metrics_address: str = own_key(
        "metricsAddress",
        "127.0.0.1",
        "interface of metricsPort; empty: all",
        local=Local.LISTENS,
        resolved=True,
    )
    metrics_host_names: str = own_key(
        "metricsHostNames",
        "",
        "names, separated by commas, by which /metrics may be asked for, beside addresses, "
        "names without a dot and private ones; *: any; empty: this machine's own",
        local=Local.ACCESS,
    )
    page_enable: bool = own_key(
        "pageEnable",
        True,
        "show a page for people on metricsPort; false: /metrics and /healthz only",
        local=Local.ACCESS,
    )
    page_token: str = own_key(
        "pageToken",
        "",
        "secret of those who may look at the page; needed where metricsAddress is not "
        "loopback, unless a broker or name server has accounts",
        rule=SECRET,
        local=Local.ACCESS,
        secret=True,
    )
    log_format: LogFormat = own_key(
        "logFormat", LogFormat.text, "text, or json: one object a line, with every field"
    )
    log_level: LogThreshold = own_key(
        "logLevel", LogThreshold.info, "debug, info, warn, error or critical: what is logged"
    )
    log_max_files: int = own_key(
        "logMaxFiles", 100, "rotated log files, of 1 MB each, that are kept; 0: all"
    )
    private_files: bool = own_key(
        "privateFiles",
        True,
        "new files and folders are for owner and group only (0640, 0750); false: as the umask "
        "says, as with RocketMQ",
    )
