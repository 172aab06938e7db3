"""Quotas: how many requests and bytes an address or account may use in a second.

Spec: remoting.md, section 1.2.
"""

from rmq_ha.base.config.netty import NettyServerConfig

BURST_S = 1.0
"""How long an unused quota is kept: a peer that was silent may use one second's quota at once."""
LONGEST_S = 60.0
"""Longest wait of a connection, in seconds, so that its peer does not take it for an idle one."""
REQUESTS_PER_IP = "maxRequestsPerSecondPerIp"
BYTES_PER_IP = "maxBytesPerSecondPerIp"
REQUESTS_PER_ACCOUNT = "maxRequestsPerSecondPerAccount"
BYTES_PER_ACCOUNT = "maxBytesPerSecondPerAccount"
_FORGET_ABOVE = 1000


class Quotas:
    """
    For each address and account, the time from which on it is within its quota again.

    No request is refused: a connection over its quota is read from later.

    :ivar held_back: how many times a connection had to wait, by the configuration key of the quota.
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
        Charge a connection for requests and bytes.

        :param account: the account that signed its last request; empty if none did.
        :param size: bytes of requests and answers.
        :param now: the clock's time, in seconds.
        :returns: how many seconds it has to wait, and the configuration key of the quota; 0.0 and
            an empty key if it need not wait.
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
