"""Who may look: everybody, or who proves to know the token or an administrator's secret key.

Neither ever goes over the wire: a challenge is signed with it (HMAC-SHA256, Base64). What is given
for it is a session, which whoever can read the connection could use, too; so the page says more
than /metrics, but changes nothing.

Pure: the time and chance come in.
"""

from collections.abc import Callable
from hmac import compare_digest
from random import Random
from typing import NamedTuple

from rmq_ha.acl.signature import Signer

CHALLENGE_S = 120.0
SESSION_S = 12 * 3600.0
MOST_CHALLENGES = 256
MOST_SESSIONS = 256
MOST_FAILURES = 5
FAILURES_S = 10.0
DOMAIN = "rmq-ha page\n"
"""Signed before the challenge, so that no signature of anything else fits."""


class NotAllowed(Exception):
    """The text says why, and may go to the peer."""


Administrator = Callable[[str, str, bytes, str], bool]
"""Access key, signature, what was signed, address: it is an administrator's."""


class _Session(NamedTuple):
    who: str
    ends: float


class Gate:
    """
    One port's.

    :param token: of `pageToken`; empty: there is none.
    :param administrator: None: there are no accounts.
    :param is_guarded: others than this machine reach the port, or access control is in force.
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
        self._challenges: dict[str, float] = {}
        self._sessions: dict[str, _Session] = {}
        self._failures: dict[str, list[float]] = {}

    @property
    def ways(self) -> list[str]:
        """How to get in; none: it is open, or closed for good."""
        ways = ["token"] if self._signer is not None else []
        return [*ways, "account"] if self._administrator is not None else ways

    @property
    def is_open(self) -> bool:
        """Nobody is asked."""
        return not self.ways and not self._is_guarded

    @property
    def is_shut(self) -> bool:
        """Nobody can get in: somebody has to say who they are, and there is no way to."""
        return not self.ways and self._is_guarded

    def challenge(self, now: float) -> str:
        """Something to sign, once."""
        for known, ends in list(self._challenges.items()):
            if ends <= now or len(self._challenges) >= MOST_CHALLENGES:
                del self._challenges[known]
        text = f"{self._random.getrandbits(160):040x}"
        self._challenges[text] = now + CHALLENGE_S
        return text

    def enter(self, now: float, host: str, account: str, challenge: str, signature: str) -> str:
        """
        Somebody signed.

        :param account: empty: with the token.
        :returns: the new session.
        :raises NotAllowed: the signature is none that we take, or too many were wrong.
        """
        if self._is_guessing(now, host):
            raise NotAllowed(f"too many wrong signatures from {host}; wait {FAILURES_S:.0f} s")
        is_known = self._challenges.pop(challenge, 0.0) > now
        content = (DOMAIN + challenge).encode()
        if not is_known:
            raise NotAllowed("the challenge is too old, or was used already; try again")
        if account:
            check = self._administrator
            is_good = check is not None and check(account, signature, content, host)
        else:
            is_good = self._signer is not None and self._signer.is_signed(signature, content, b"")
        if not is_good:
            self._failures.setdefault(host, []).append(now)
            raise NotAllowed(
                "no administrator's account has this access key and secret key"
                if account
                else "the token is another one"
            )
        return self._begin(now, account or "token")

    def who(self, now: float, session: str) -> str | None:
        """Whose session this is; None: nobody's, any more."""
        entry = self._sessions.get(session)
        return entry.who if entry is not None and entry.ends > now else None

    def shows_token(self, now: float, host: str, text: str) -> bool:
        """For scripts, which send the token itself."""
        if not self._token or self._is_guessing(now, host):
            return False
        if compare_digest(text.encode(), self._token.encode()):
            return True
        self._failures.setdefault(host, []).append(now)
        return False

    def leave(self, session: str) -> None:
        """It is no session any more."""
        self._sessions.pop(session, None)

    def _begin(self, now: float, who: str) -> str:
        for known, session in list(self._sessions.items()):
            if session.ends <= now or len(self._sessions) >= MOST_SESSIONS:
                del self._sessions[known]
        text = f"{self._random.getrandbits(256):064x}"
        self._sessions[text] = _Session(who, now + SESSION_S)
        return text

    def _is_guessing(self, now: float, host: str) -> bool:
        for known, moments in list(self._failures.items()):
            moments[:] = [moment for moment in moments if moment > now - FAILURES_S]
            if not moments:
                del self._failures[known]
        return len(self._failures.get(host, ())) >= MOST_FAILURES
