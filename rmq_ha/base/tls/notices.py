"""Log lines about this server's own certificates."""

from collections.abc import Sequence

from cryptography import x509
from twisted.logger import Logger

from rmq_ha.base.tls.files import KeyPair, expiry_notices

Held = tuple[str, x509.Certificate]
"""A certificate in use, and the setting that it comes from."""


def tell_expiry(
    log: Logger,
    pair: KeyPair | None,
    prefix: str,
    trust: Sequence[x509.Certificate] | None,
    now_ms: int,
) -> tuple[Held, ...]:
    """
    Log which certificates have ended or will end soon.

    :returns: all certificates in use.
    """
    held = [] if pair is None else [(f"{prefix}.certPath", pair.certificate)]
    if pair is not None:
        held += [(f"{prefix}.certPath, its chain", item) for item in pair.chain]
    held += [(f"{prefix}.trustCertPath", item) for item in trust or ()]
    for notice in expiry_notices(held, now_ms):
        if notice.is_error:
            log.error("{notice}", notice=notice.text)
        else:
            log.warn("{notice}", notice=notice.text)
    return tuple(held)
