"""How much an address, and an account, may ask for in a second.

Spec: remoting.md, section 1.2.
"""

from rmq_ha.base.config.netty import NettyServerConfig

BURST_S = 1.0
"""What was not used is kept for so long: whoever was silent may send a second's quota at once."""
LONGEST_S = 60.0
"""A connection waits no longer, so that nobody takes it for an idle one."""
REQUESTS_PER_IP = "maxRequestsPerSecondPerIp"
BYTES_PER_IP = "maxBytesPerSecondPerIp"
REQUESTS_PER_ACCOUNT = "maxRequestsPerSecondPerAccount"
BYTES_PER_ACCOUNT = "maxBytesPerSecondPerAccount"
_FORGET_ABOVE = 1000


class Quotas:
    """
    What each one has taken, as the moment from which on it is within its quota again.

    Nothing is refused: whoever has taken too much is read from later.

    :ivar held_back: how often a connection had to wait, by the key that says so.
    """

    def __init__(self, config: NettyServerConfig) -> None:
        self._config = config
        self._free_at: dict[tuple[str, str], float] = {}
        self.held_back = dict.fromkeys(
            (REQUESTS_PER_IP, BYTES_PER_IP, REQUESTS_PER_ACCOUNT, BYTES_PER_ACCOUNT), 0
        )

    @property
    def is_any(self) -> bool:
        config = self._config
        return bool(
            config.max_requests_per_second_per_ip
            or config.max_bytes_per_second_per_ip
            or config.max_requests_per_second_per_account
            or config.max_bytes_per_second_per_account
        )

    def charge(
        self, host: str, account: str, requests: int, size: int, now: float
    ) -> tuple[float, str]:
        """
        A connection has taken this.

        :param account: that signed its last request; empty: none.
        :param size: bytes of requests and answers.
        :param now: seconds.
        :returns: seconds that it has to wait, and the key that says so; 0.0 and nothing: none.
        """
        config = self._config
        wait, reason = 0.0, ""
        for key, who, taken, most in (
            (REQUESTS_PER_IP, host, requests, config.max_requests_per_second_per_ip),
            (BYTES_PER_IP, host, size, config.max_bytes_per_second_per_ip),
            (REQUESTS_PER_ACCOUNT, account, requests, config.max_requests_per_second_per_account),
            (BYTES_PER_ACCOUNT, account, size, config.max_bytes_per_second_per_account),
        ):
            if most and who:
                free_at = max(self._free_at.get((key, who), now), now) + taken / most
                self._free_at[key, who] = free_at
                if free_at - now - BURST_S > wait:
                    wait, reason = free_at - now - BURST_S, key
        if reason:
            self.held_back[reason] += 1
        if len(self._free_at) > _FORGET_ABOVE:
            self._free_at = {who: at for who, at in self._free_at.items() if at > now}
        return min(wait, LONGEST_S), reason
