"""Certificates that live as long as a test, and TLS without sockets."""

from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import trustme

from rmq_ha.base.errors import TlsRefused


def now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


@cache
def authority(name: str = "ours") -> trustme.CA:
    """One root a name; making keys is slow."""
    return trustme.CA(organization_name=name)


class Files(dict):
    """A disk that holds what a test puts there."""

    def read_bytes(self, path: str) -> bytes:
        try:
            return self[path]
        except KeyError:
            raise FileNotFoundError(2, "No such file or directory", path) from None

    def put_pair(self, prefix: str, *names: str, root: str = "ours", ends: timedelta | None = None):
        """Key and certificate of `names`; the options that name them."""
        expires = None if ends is None else datetime.now(UTC) + ends
        issued = authority(root).issue_cert(*names, not_after=expires)
        key, certificate = f"/{prefix}.key", f"/{prefix}.pem"
        self[key] = issued.private_key_pem.bytes()
        self[certificate] = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
        return {f"{prefix}.keyPath": key, f"{prefix}.certPath": certificate}

    def put_root(self, prefix: str, root: str = "ours"):
        """The root's certificate; the option that names it."""
        path = f"/{root}-root.pem"
        self[path] = authority(root).cert_pem.bytes()
        return {f"{prefix}.trustCertPath": path}

    def on_disk(self, folder: Path) -> "Files":
        """Write everything below a real folder."""
        for path, data in self.items():
            (folder / path.lstrip("/")).write_bytes(data)
        return self


def talk(client, server) -> None:
    """
    Let two sessions exchange bytes until both are silent.

    :raises TlsRefused: the first refusal.
    """
    refusals = []
    client.start()
    for _ in range(10):
        for source, target in ((client, server), (server, client)):
            data = source.data_to_send()
            if data:
                try:
                    target.receive_data(data)
                except TlsRefused as error:
                    refusals.append(error)
    if refusals:
        raise refusals[0]
    assert client.is_secured
    assert server.is_secured
