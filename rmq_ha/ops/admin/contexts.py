"""Contexts: clusters by name, each with its name servers, account and certificates, in one file."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.host.private_file import read_private, write_private

Values = Mapping[str, Any]
ACCOUNT = ("access_key", "secret_key", "security_token")
TLS = ("tls", "tls_ca", "tls_cert", "tls_key")
KEYS = ("namesrv", *ACCOUNT, "sign_only_over_tls", *TLS, "timeout")
"""Names of the shared options that a context may have values for."""
SECRET = ("secret_key", "security_token")


@dataclass(slots=True)
class Contexts:
    """
    The content of the file of contexts.

    :ivar used: name of the context that is used if the command line names none; None: no context is
        used then.
    """

    used: str | None = None
    known: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str) -> "Contexts":
        """
        Read the file; without a file the result has no contexts.

        :raises ConfigurationError: it is not a file of contexts, or other users may read it.
        """
        data = read_private(path)
        return cls() if data is None else cls.decode(data, path)

    @classmethod
    def decode(cls, data: bytes, path: str) -> "Contexts":
        """
        Read the content of a file of contexts.

        :raises ConfigurationError: it is not a file of contexts.
        """
        try:
            value = json.loads(data)
            used, known = value.get("used"), value.get("contexts") or {}
            return cls(
                None if used is None else str(used),
                {
                    str(name): {key: context[key] for key in KEYS if key in context}
                    for name, context in known.items()
                },
            )
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise ConfigurationError(f"{path} is no file of contexts") from None

    def write(self, path: str) -> None:
        """
        Write the file so that only this user may read it.

        :raises ConfigurationError: the disk refuses.
        """
        value = {"used": self.used, "contexts": self.known}
        write_private(path, (json.dumps(value, indent=2) + "\n").encode())

    def get(self, name: str) -> dict[str, Any]:
        """
        Return the values of a context.

        :raises ConfigurationError: no context has this name.
        """
        context = self.known.get(name)
        if context is None:
            known = ", ".join(sorted(self.known)) or "none"
            raise ConfigurationError(
                f"there is no context {name} (known: {known}); `context add` makes one"
            )
        return context


def merged(given: Values, on_line: Collection[str], context: Values, *, is_named: bool) -> Values:
    """
    Return the given options together with a context's: the command line wins over a context that
    was named there, which wins over the environment, which wins over the context in use.

    An account and its secret come from one of these places together, and so do a certificate and
    its key. The context in use adds nothing where other name servers are given: its secret is for
    its own cluster.

    :param given: options from the command line or the environment.
    :param on_line: names of the given options that came from the command line.
    :param context: the values of the context.
    :param is_named: whether the context was named by an option; else it is the context in use.
    """
    if not is_named:
        if "namesrv" in given:
            return given
        return {**_without_pairs(context, given), **given}
    line = {key: value for key, value in given.items() if key in on_line}
    return {**_without_pairs(given, context), **_without_pairs(context, line), **line}


def _without_pairs(values: Values, stronger: Values) -> Values:
    """
    Return `values` without the account, or without the certificate and key, if `stronger` has that
    pair.
    """
    weak: set[str] = set()
    for pair in (ACCOUNT, ("tls_cert", "tls_key")):
        if any(stronger.get(key) for key in pair):
            weak.update(pair)
    return {key: value for key, value in values.items() if key not in weak}
