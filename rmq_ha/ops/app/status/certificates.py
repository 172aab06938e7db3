"""Metrics of when the certificates of a server end."""

from collections.abc import Mapping

from rmq_ha.base.tls.reload import TlsReload
from rmq_ha.ops.app.status.samples import Samples

_MOST = 50
"""
The number of certificates in a scrape. A file of roots may hold hundreds; the ones that end first
are chosen.
"""


class CertificatesStatus:
    """
    Adds the ends of certificates to a server's metrics.

    :param server: `rmqha`, `rmqnamesrv` or `rmqcontroller`.
    """

    def __init__(self, server: str, tls: TlsReload) -> None:
        self._server = server
        self._tls = tls

    def constants(self) -> Mapping[str, str]:
        return {"server": self._server}

    def collect(self, samples: Samples) -> None:
        ends = sorted(self._tls.certificates().items(), key=lambda item: item[1])
        for (setting, who), end in ends[:_MOST]:
            samples.add("rmqha_certificate_end_seconds", end, setting=setting, who=who)
