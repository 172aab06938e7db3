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
    "keyPath": "file with the private key",
    "keyPassword": "password of the private key",
    "certPath": "file with the certificate chain",
    "trustCertPath": "file with the certificates that prove the other side",
}
_SIDES = {
    "server": ("of the ports for clients", FirstReader.RMQ_4),
    "client": ("of this server's connections to other servers", FirstReader.RMQ_4),
    "ha": ("of replication, of both ends", FirstReader.OURS),
}

_ROWS = (
    Key(
        name="tls.server.mode",
        rule=_MODES,
        meaning="disabled: ports for clients take no TLS; enforcing: TLS only; without the key: "
        "permissive, both",
    ),
    Key(
        name="tls.server.need.client.auth",
        rule=_CLIENT_AUTH,
        meaning="whether a client has to show a certificate; without the key: none",
    ),
    Key(
        name="tls.server.authClient",
        kind=bool,
        meaning="check the certificate of a client; without the key: if tls.server.trustCertPath "
        "is set",
    ),
    Key(
        name="tls.client.authServer",
        kind=bool,
        meaning="check the certificate of a server; without the key: if tls.client.trustCertPath "
        "is set",
    ),
    Key(
        name="tls.enable",
        kind=bool,
        meaning="connect to other servers by TLS; without the key: if tls.server.mode=enforcing",
    ),
    Key(
        name="tls.test.mode.enable",
        kind=bool,
        meaning="false: use the files of the other keys; without the key: true",
    ),
    Key(
        name="tls.config.file",
        meaning="file with further keys, which win; without the key: "
        "/etc/rocketmq/tls.properties, if it is there",
    ),
    *(
        Key(
            name=f"tls.{side}.{name}",
            since=since,
            is_secret=name == "keyPassword",
            meaning=f"{what} {where}",
        )
        for side, (where, since) in _SIDES.items()
        for name, what in _FILES.items()
    ),
    Key(
        name="tls.ha.mode",
        since=FirstReader.OURS,
        rule=_MODES,
        meaning="permissive: the replication port takes TLS, too; enforcing: TLS only; without the "
        "key: disabled",
    ),
    Key(
        name="tls.ha.enable",
        since=FirstReader.OURS,
        kind=bool,
        meaning="replicate from the master by TLS; without the key: false",
    ),
    Key(
        name="tls.ha.allowedNames",
        since=FirstReader.OURS,
        meaning="names in certificates of brokers that may replicate, separated by commas; *: each "
        "certificate of the root",
    ),
    Key(
        name="tls.ha.masterName",
        since=FirstReader.OURS,
        meaning="name in the master's certificate; without the key: the host that is connected to",
    ),
)

TLS_KEYS: Mapping[str, Key] = {row.name: row for row in _ROWS}
"""Every key that begins with `tls.`, by its name."""
