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
        "The address on which the server listens. Empty, as RocketMQ: all addresses of IPv4 and "
        "IPv6.",
        local=Local.LISTENS,
        resolved=True,
    )
    acl_directory: str | None = own_key(
        "aclDirectory",
        None,
        "The folder with plain_acl.yml and the folder acl. Empty: the folder conf of "
        "rocketmqHome or, without rocketmqHome, the folder of this properties file.",
        local=Local.ACCESS,
    )
    acl_requires_tls: bool = own_key(
        "aclRequiresTls",
        False,
        "true: refuse signed requests that come without TLS, since a listener could record "
        "them. The server then signs its own requests only on TLS connections to verified "
        "servers.",
        local=Local.ACCESS,
    )
    acl_requires_signed_time: bool = own_key(
        "aclRequiresSignedTime",
        False,
        "true: take only signatures that also cover the code, the time and the number of a "
        "request, as clients and brokers of rmq-ha make them. false: also take signatures of "
        "RocketMQ 4.9. A listener can record such a request and send it again.",
        local=Local.ACCESS,
    )
    acl_signed_time_window: int = own_key(
        "aclSignedTimeWindow",
        300,
        "By how many seconds the time of a signed request may differ from this server's clock. "
        "With aclRequiresSignedTime=true a request with a larger difference is refused; "
        "otherwise it is only logged.",
        least=1,
        most=86400,
        local=Local.ACCESS,
    )
    acl_signed_sessions: int = own_key(
        "aclSignedSessions",
        10000,
        "For how many client sessions of one account the server remembers which requests came, "
        "so that it takes none twice. Beyond that, it forgets the session that was used longest "
        "ago; with aclRequiresSignedTime=true it then refuses that session's requests.",
        least=1,
        local=Local.ACCESS,
    )
    metrics_port: int = own_key(
        "metricsPort",
        0,
        "The port for /metrics (Prometheus), /healthz and the page, over HTTP. 0: the server "
        "does not open it.",
        most=MOST_PORT,
        local=Local.LISTENS,
    )
    metrics_address: str = own_key(
        "metricsAddress",
        "127.0.0.1",
        "The address on which metricsPort listens. Empty: all addresses. The default is this "
        "machine alone, because neither /metrics nor /healthz asks for a password.",
        local=Local.LISTENS,
        resolved=True,
    )
    metrics_host_names: str = own_key(
        "metricsHostNames",
        "",
        "Further host names, separated by commas, by which Prometheus may ask for /metrics. IP "
        "addresses, names without a dot, private names such as those below .local, and this "
        "machine's own name always work. An asterisk: any name.",
        local=Local.ACCESS,
    )
    page_enable: bool = own_key(
        "pageEnable",
        True,
        "true: metricsPort also shows the page for people. false: /metrics and /healthz only.",
        local=Local.ACCESS,
    )
    page_token: str = own_key(
        "pageToken",
        "",
        "The secret that people type to see the page. It is needed if metricsAddress is not a "
        "loopback address, unless a broker or name server has accounts (aclEnable=true).",
        rule=SECRET,
        local=Local.ACCESS,
        secret=True,
    )
    log_format: LogFormat = own_key(
        "logFormat",
        LogFormat.text,
        "text: a log line is text. json: a log line is one JSON object with every field, for "
        "programs that collect logs.",
    )
    log_level: LogThreshold = own_key(
        "logLevel",
        LogThreshold.info,
        "The lowest level that is logged. The level debug is for developers.",
    )
    log_max_files: int = own_key(
        "logMaxFiles", 100, "How many rotated log files of 1 MB are kept. 0: all of them."
    )
    private_files: bool = own_key(
        "privateFiles",
        True,
        "true: only owner and group may read new files and folders (modes 0640 and 0750). "
        "false, as RocketMQ: the umask of the process decides.",
    )
