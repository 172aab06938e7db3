"""
The host names that a request for /metrics may use.

A web site that a browser shows may point its own name at an address that only this browser reaches,
and read the answer, because the browser takes both for one site. It cannot do that with an address,
nor with a name that nobody can have in the Internet.
"""

from rmq_ha.base.model.networks import canonical

KEY = "metricsHostNames"
ANY = "*"
_NOT_IN_THE_INTERNET = (".localhost", ".local", ".internal", ".home.arpa")


class AllowedHostNames:
    """
    The host names that are allowed: addresses, names without a dot, private names, and those of
    `metricsHostNames`.

    :param text: names, comma-separated; `*`: any.
    """

    def __init__(self, text: str) -> None:
        self._names = {_plain(name) for name in text.split(",")}

    def __contains__(self, name: str) -> bool:
        """Whether a request that names this host is answered."""
        plain = _plain(name)
        return (
            "." not in plain
            or plain in self._names
            or ANY in self._names
            or plain.endswith(_NOT_IN_THE_INTERNET)
            or canonical(plain) is not None
        )


def _plain(name: str) -> str:
    return name.strip().lower().rstrip(".")
