"""Lists of addresses and networks, as configuration keys of rmq-ha have them: `10.0.0.7,
10.1.0.0/16, fd00::/8`.
"""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

_NAME = re.compile(r"(?=[\w.-]*[A-Za-z])[\w.-]+", re.ASCII)
EVERYBODY = "*"
_MOST_REMEMBERED = 4096
_LOCALHOST = {"localhost": "127.0.0.0/8"}


def canonical(host: str) -> str | None:
    """
    Return an address in the one spelling that may be compared; an IPv4-mapped IPv6 address becomes
    IPv4.

    :returns: None if the text is no address, so it may be a name.
    """
    address = _parse(host)
    return None if address is None else str(address)


def is_loopback(host: str) -> bool:
    """Return whether a host is an address of the machine itself, such as 127.0.0.1."""
    address = _parse(host)
    return address is not None and address.is_loopback


def is_this_machine(host: str) -> bool:
    """Return whether a host is the name `localhost` or a loopback address."""
    return host.lower() == "localhost" or is_loopback(host)


class Networks:
    """
    Addresses and networks. `*` stands for everybody, an empty text for nobody.

    :ivar text: the text as it was given.
    """

    def __init__(self, text: str = "", *, with_names: bool = False) -> None:
        """
        :param with_names: whether a part may be a name. A name is compared as text and not looked
            up.
        :raises ValueError: a part is neither address nor network; the message names the part and
            says why.
        """
        self.text = text.strip()
        parts = [part.strip() for part in text.split(",") if part.strip()]
        self._everybody = EVERYBODY in parts
        self._names: set[str] = set()
        self._networks: list[IPv4Network | IPv6Network] = []
        for part in parts:
            if part == EVERYBODY:
                continue
            try:
                self._networks.append(ip_network(_LOCALHOST.get(part, part), strict=False))
            except ValueError:
                if with_names and _NAME.fullmatch(part):
                    self._names.add(part.lower())
                    continue
                raise ValueError(
                    f"{part!r} is neither an address nor a network such as 10.1.0.0/16; names are "
                    "not looked up here"
                ) from None
        self._known: dict[str, bool] = {}

    def __bool__(self) -> bool:
        return self._everybody or bool(self._networks) or bool(self._names)

    def __contains__(self, host: str) -> bool:
        """
        Return whether an address, as text, belongs to the list. A text that is no address belongs
        to `*` and to equal names only.
        """
        if self._everybody:
            return True
        known = self._known.get(host)
        if known is None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            known = self._known[host] = self._look(host)
        return known

    def _look(self, host: str) -> bool:
        address = _parse(host)
        if address is None:
            return host.lower() in self._names
        return any(address in network for network in self._networks)


def _parse(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
