"""Checks the signed times of requests, so that no request is accepted too late or twice."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from rmq_ha.base.acl.refusals import RefusalReason
from rmq_ha.base.acl.signed_time import Stamp

_RECENT = 1024
"""
How many numbers of a session are remembered, counted down from the highest. A request with a lower
number is refused, so requests may overtake each other only within these.
"""
_MASK = (1 << _RECENT) - 1


class AclKeys(Protocol):
    """The settings of a broker or a name server for signed requests."""

    acl_requires_tls: bool
    acl_requires_signed_time: bool
    acl_signed_time_window: int
    acl_signed_sessions: int


class Stale(NamedTuple):
    """
    The refusal of a signed time that is too old, or of a request that came before.

    :ivar reason: text for the sender of the request.
    """

    kind: RefusalReason
    reason: str


class Freshness:
    """
    Accepts each signed request once. It remembers a bounded number of requests, and refuses a
    request of which it cannot know any more whether it came before.

    A client of rmq-ha signs a time, a session and a number with each request. A session is a random
    text for the client's requests to one address; its numbers grow. For each
    session the highest number is kept, and which of the numbers right below it came. A session
    is forgotten when its last time is too old to be accepted again, or when its account has too
    many sessions. A request of an unknown session must be younger than all forgotten sessions.

    A request that came before is always refused. A request is only suspicious if its time is too
    far from this server's, or older than a forgotten session. A suspicious request is refused only
    where signed times are required. Elsewhere a refusal would not help, as an attacker could leave
    the signed time out; and it would stop a client whose clock is wrong.

    :param now_ms: returns this server's time, in ms since the epoch.
    :param is_required: whether every request must have a signed time. Then requests from before
        this start are refused, since nobody knows any more which of them came.
    :param window_s: accepted difference between the clocks of client and server, in seconds.
    :param most_sessions: the most sessions of one account that are remembered.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        is_required: bool = False,
        window_s: int = 300,
        most_sessions: int = 10_000,
        on_odd: Callable[[str, str], object] = lambda access_key, reason: None,
    ) -> None:
        """:param on_odd: called with account and reason when a suspicious request is accepted."""
        self._now_ms = now_ms
        self.is_required = is_required
        self._window_ms = window_s * 1000
        self._most = most_sessions
        self._on_odd = on_odd
        self._began = now_ms() if is_required else 0
        self._accounts: dict[str, _AccountSessions] = {}

    def __len__(self) -> int:
        return sum(len(account.sessions) for account in self._accounts.values())

    def take(self, access_key: str, stamp: Stamp) -> Stale | None:
        """
        Judge a request whose signature is right, and remember it.

        :param access_key: the account that signed it.
        :param stamp: its signed time, session and number.
        :returns: why the request must not be accepted; None: accept it.
        """
        stale = self._judge(access_key, stamp)
        if stale is None or self.is_required or stale.kind is not RefusalReason.TIME:
            return stale
        self._on_odd(access_key, stale.reason)
        return None

    def _judge(self, access_key: str, stamp: Stamp) -> Stale | None:
        now = self._now_ms()
        if abs(now - stamp.time_ms) > self._window_ms:
            apart = (stamp.time_ms - now) / 1000
            return Stale(
                RefusalReason.TIME,
                f"it was signed at {stamp.time_ms} ms, {abs(apart):.0f} s "
                f"{'after' if apart > 0 else 'before'} this server's clock, and aclSignedTimeWindow"
                f"={self._window_ms // 1000}: set the clocks right, or sign the request anew",
            )
        account = self._accounts.get(access_key)
        if account is None:
            account = self._accounts[access_key] = _AccountSessions(self._began)
        session = account.sessions.pop(stamp.session, None)
        if session is None:
            if stamp.time_ms <= account.floor:
                return Stale(
                    RefusalReason.TIME,
                    f"it was signed at {stamp.time_ms} ms, and this server knows only since "
                    f"{account.floor} ms which requests came: sign it anew",
                )
            account.forget(now - self._window_ms, self._most - 1)
            session = _SignedSession()
        account.sessions[stamp.session] = session  # the session that was used last stands last
        if not session.take(stamp):
            return Stale(
                RefusalReason.REPLAY,
                f"number {stamp.number} of session {stamp.session} came before: a request is taken "
                "once; sign it anew",
            )
        return None


class _AccountSessions:
    """
    The sessions of one account; the one used longest ago stands first.

    :ivar floor: the latest time of the forgotten sessions, in ms since the epoch.
    """

    __slots__ = ("floor", "sessions")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.sessions: dict[str, _SignedSession] = {}

    def forget(self, before_ms: int, most: int) -> None:
        """
        Drop sessions, the one used longest ago first, while that one is older than `before_ms` or
        there are more than `most`.
        """
        sessions = self.sessions
        while sessions:
            name = next(iter(sessions))
            latest = sessions[name].latest_ms
            if latest >= before_ms and len(sessions) <= most:
                return
            self.floor = max(self.floor, latest)
            del sessions[name]


class _SignedSession:
    """
    The numbers of the requests that came in one session.

    :ivar latest_ms: the highest time that was signed in it, in ms since the epoch.
    """

    __slots__ = ("_highest", "_seen", "latest_ms")

    def __init__(self) -> None:
        self._highest = -1
        self._seen = 0  # bit n: the number n below the highest
        self.latest_ms = 0

    def take(self, stamp: Stamp) -> bool:
        """Note a request's number. Return whether no request with this number came before."""
        ahead = stamp.number - self._highest
        if ahead > 0:
            self._seen = (self._seen << ahead | 1) & _MASK if ahead < _RECENT else 1
            self._highest = stamp.number
        else:
            bit = 1 << -ahead if -ahead < _RECENT else 0
            if not bit or self._seen & bit:
                return False
            self._seen |= bit
        self.latest_ms = max(self.latest_ms, stamp.time_ms)
        return True
