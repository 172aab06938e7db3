"""The `tls.` keys, which stand in the properties file or in `tls.config.file`.

The defaults of some keys depend on other keys, so each meaning says which value holds if the key is
missing.

Spec: remoting.md, section 1.10.
"""

from collections.abc import Mapping

from rmq_ha.base.config.fields import FirstReader, Key
from rmq_ha.base.config.text_rules import one_of

_MODES = one_of("disabled", "permissive", "enforcing")
_CLIENT_AUTH = one_of("none", "optional", "require")
_FILES = {
    "keyPath": "The file with the private key",
    "keyPassword": "The password of the private key",
    "certPath": "The file with the certificate and the chain that signs it",
    "trustCertPath": "The file with the root certificates that have to have signed the "
    "certificate of the other side",
}
_SIDES = {
    "server": ("for the ports of clients", FirstReader.RMQ_4),
    "client": ("for this server's connections to other servers", FirstReader.RMQ_4),
    "ha": ("for replication, on master and slave", FirstReader.OURS),
}

_ROWS = (
    Key(
        name="tls.server.mode",
        rule=_MODES,
        meaning="How clients may connect. disabled: without TLS only. permissive: with or without "
        "TLS. enforcing: with TLS only. Without the key: permissive.",
    ),
    Key(
        name="tls.server.need.client.auth",
        rule=_CLIENT_AUTH,
        meaning="Whether a client has to show a certificate. none: it is not asked for one. "
        "optional: it may show one. require: it has to. Without the key: none.",
    ),
    Key(
        name="tls.server.authClient",
        kind=bool,
        meaning="true: a client's certificate has to be signed by a root in "
        "tls.server.trustCertPath. Without the key: true if tls.server.trustCertPath is set.",
    ),
    Key(
        name="tls.client.authServer",
        kind=bool,
        meaning="true: the certificate of another server has to be signed by a root in "
        "tls.client.trustCertPath and has to name the server's host. Without the key: true if "
        "tls.client.trustCertPath is set.",
    ),
    Key(
        name="tls.enable",
        kind=bool,
        meaning="true: this server connects to other servers with TLS. Without the key: true if "
        "tls.server.mode=enforcing.",
    ),
    Key(
        name="tls.test.mode.enable",
        kind=bool,
        meaning="Write false to use the files that the other tls. keys name. true, as without "
        "the key: "
        "the server makes a certificate of its own and checks nobody's. If the key is missing "
        "and a "
        "file is named, the start is refused.",
    ),
    Key(
        name="tls.config.file",
        meaning="A file with further tls. keys. Its values take precedence. Without the key: "
        "/etc/rocketmq/tls.properties, if that file is there.",
    ),
    *(
        Key(
            name=f"tls.{side}.{name}",
            since=since,
            is_secret=name == "keyPassword",
            meaning=f"{what}, {where}.",
        )
        for side, (where, since) in _SIDES.items()
        for name, what in _FILES.items()
    ),
    Key(
        name="tls.ha.mode",
        since=FirstReader.OURS,
        rule=_MODES,
        meaning="How slaves may connect to the replication port. disabled: without TLS only. "
        "permissive: with or without TLS. enforcing: with TLS only. Without the key: disabled, "
        "because brokers of RocketMQ cannot replicate with TLS.",
    ),
    Key(
        name="tls.ha.enable",
        since=FirstReader.OURS,
        kind=bool,
        meaning="true: this broker connects to its master, or to the other members of its DLedger "
        "group, with TLS. Without the key: false.",
    ),
    Key(
        name="tls.ha.allowedNames",
        since=FirstReader.OURS,
        meaning="The names, separated by commas, of which a slave's certificate needs one. An "
        "asterisk: each certificate that is signed by a root in tls.ha.trustCertPath.",
    ),
    Key(
        name="tls.ha.masterName",
        since=FirstReader.OURS,
        meaning="The name that the certificate of the master, or of a DLedger member, needs. "
        "Without "
        "the key: the host to which this broker connects.",
    ),
)

TLS_KEYS: Mapping[str, Key] = {row.name: row for row in _ROWS}
"""Every key that begins with `tls.`, by its name."""
