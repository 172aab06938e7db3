"""Removes secrets from texts that leave the site, such as those of a support bundle."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "***"
_LEAST = 6
"""
Shortest secret that is removed wherever it stands; a shorter one would also hit common words. It is
still hidden where its key says that it is a secret.
"""
_NAMES = "password|passwd|passphrase|secret|token|private.?key|credential|signature|authorization"
_IS_SECRET = re.compile(_NAMES, re.IGNORECASE)
_NO_SECRETS = frozenset({"haSecretRequired", "haSecretFile"})
"""Keys whose names contain such a word, and whose values are no secrets."""
_VALUE = r"(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s,;}\]&\"']+)"
_ASSIGNED = re.compile(
    rf"([\"']?[\w.-]*(?:{_NAMES})[\w.-]*[\"']?\s*[=:]\s*)(?:(?:Bearer|Basic)\s+)?{_VALUE}",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[\w.+/=~-]{6,}", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(://[^/\s:@]*:)[^/\s@]+(@)")
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)


def is_secret_name(name: str) -> bool:
    """Return whether a key, by its name, has a secret as its value."""
    return name not in _NO_SECRETS and bool(_IS_SECRET.search(name))


class Redactor:
    """
    Removes known secrets, and values that stand behind names of secrets.

    :param secrets: secrets that this process knows; they are removed wherever they stand.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        for secret in secrets:
            self.learn(secret)

    def learn(self, secret: str) -> None:
        """Remove this secret, too, from now on."""
        secret = secret.strip()
        if len(secret) >= _LEAST and secret != HIDDEN:
            self._secrets |= {secret, json.dumps(secret)[1:-1]}

    def settings(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return settings with the values of secrets hidden; the values are learnt."""
        for name, value in values.items():
            if is_secret_name(name):
                self.learn(value)
        return {
            name: HIDDEN if value and is_secret_name(name) else value
            for name, value in values.items()
        }

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        text = _KEY_BLOCK.sub(f"{HIDDEN} (private key)", text)
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        text = _ASSIGNED.sub(_without_value, text)
        text = _BEARER.sub(rf"\1 {HIDDEN}", text)
        return _IN_ADDRESS.sub(rf"\1{HIDDEN}\2", text)


def _without_value(match: re.Match[str]) -> str:
    name = match.group(1).strip("\"' =:\t")
    if name in _NO_SECRETS:
        return match.group(0)
    value: Any = match.group(2)
    mark = value[0] if value[0] in "\"'" else ""
    return f"{match.group(1)}{mark}{HIDDEN}{mark}"
