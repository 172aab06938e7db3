"""
Decides which clients may see the page: all clients, or those that prove that they know the token or
an administrator's secret key.

No secret is ever sent: the client signs a challenge with it (HMAC-SHA256, Base64) and gets a
session. An eavesdropper on the connection could use that session, too. So the page shows more than
/metrics, but changes nothing.

No client can lock another one out: a right proof is accepted even after many wrong ones, and a
challenge is remembered only when it was used. A token of 16 characters cannot be guessed; the log
names the addresses that try.

Pure: the time and random numbers are passed in.
"""

from collections.abc import Callable
from hmac import compare_digest, digest
from random import Random
from typing import NamedTuple

from rmq_ha.base.acl.signature import Signer

CHALLENGE_S = 120.0
SESSION_S = 12 * 3600.0
MOST_USED = 256
MOST_SESSIONS = 256
DOMAIN = "rmq-ha page\n"
"""Signed before the challenge, so that signatures made for another purpose do not fit."""


class NotAllowed(Exception):
    """The client may not enter. The text says why, and may be sent to the client."""


Administrator = Callable[[str, str, bytes, str], bool]
"""
Called with access key, signature, signed bytes and address; returns whether an administrator
signed.
"""


class _PageSession(NamedTuple):
    who: str
    ends: float


class Gate:
    """
    The gate of one port.

    :param token: `pageToken`; empty: none is set.
    :param administrator: checks signatures of accounts; None: there are no accounts.
    :param is_guarded: whether other machines reach the port, or access control is in force.
    """

    def __init__(
        self,
        random: Random,
        *,
        token: str,
        administrator: Administrator | None,
        is_guarded: bool,
    ) -> None:
        self._random = random
        self._signer = Signer(token, is_long=True) if token else None
        self._token = token
        self._administrator = administrator
        self._is_guarded = is_guarded
        self._seal = random.getrandbits(256).to_bytes(32)
        self._used: dict[str, float] = {}
        self._sessions: dict[str, _PageSession] = {}

    @property
    def ways(self) -> list[str]:
        """The ways to enter; none: the port is open to all, or closed to all."""
        ways = ["token"] if self._signer is not None else []
        return [*ways, "account"] if self._administrator is not None else ways

    @property
    def is_open(self) -> bool:
        return not self.ways and not self._is_guarded

    @property
    def is_shut(self) -> bool:
        """
        Whether nobody can enter: clients must prove who they are, but neither token nor accounts
        exist.
        """
        return not self.ways and self._is_guarded

    def challenge(self, now: float) -> str:
        """
        Return a text to sign, valid once. It holds its own end time under a seal, so nothing is
        kept for it.
        """
        text = f"{self._random.getrandbits(128):032x}-{int((now + CHALLENGE_S) * 1000):x}"
        return f"{text}-{self._seal_of(text)}"

    def enter(self, now: float, host: str, account: str, challenge: str, signature: str) -> str:
        """
        Check a signed challenge and begin a session.

        :param host: address of the client.
        :param account: access key of the signer; empty: the challenge is signed with the token.
        :returns: the new session.
        :raises NotAllowed: the signature is not accepted.
        """
        ends = self._end_of(challenge)
        if ends <= now or challenge in self._used:
            raise NotAllowed("the challenge is too old, or was used already; try again")
        content = (DOMAIN + challenge).encode()
        if account:
            check = self._administrator
            is_good = check is not None and check(account, signature, content, host)
        else:
            is_good = self._signer is not None and self._signer.is_signed(signature, content, b"")
        if not is_good:
            raise NotAllowed(
                "no administrator's account has this access key and secret key"
                if account
                else "the token is wrong"
            )
        for known, end in list(self._used.items()):
            if end <= now or len(self._used) >= MOST_USED:
                del self._used[known]
        self._used[challenge] = ends
        return self._begin(now, account or "token")

    def account_of(self, now: float, session: str) -> str | None:
        """
        Return the account that a session belongs to; None: the session is unknown or has ended.
        """
        entry = self._sessions.get(session)
        return entry.who if entry is not None and entry.ends > now else None

    def shows_token(self, text: str) -> bool:
        """Return whether a text is the token. Scripts send the token itself."""
        return bool(self._token) and compare_digest(text.encode(), self._token.encode())

    def leave(self, session: str) -> None:
        """Forget a session, so that its cookie opens nothing more; an unknown one is ignored."""
        self._sessions.pop(session, None)

    def _begin(self, now: float, who: str) -> str:
        for known, session in list(self._sessions.items()):
            if session.ends <= now or len(self._sessions) >= MOST_SESSIONS:
                del self._sessions[known]
        text = f"{self._random.getrandbits(256):064x}"
        self._sessions[text] = _PageSession(who, now + SESSION_S)
        return text

    def _seal_of(self, text: str) -> str:
        return digest(self._seal, text.encode(), "sha256")[:16].hex()

    def _end_of(self, challenge: str) -> float:
        """Return until when a challenge may be used; 0: this server did not make it."""
        text, _, seal = challenge.rpartition("-")
        if not compare_digest(self._seal_of(text).encode(), seal.encode()):
            return 0.0
        return int(text.rpartition("-")[2], 16) / 1000
