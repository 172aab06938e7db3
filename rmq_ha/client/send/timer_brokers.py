"""TimerBrokers: finds out which brokers have timers, and refuses sends with a timer to others.

A broker of RocketMQ 4.9 answers SEND_OK to a message with a timer, and delivers it at once. So a
broker is asked first, by a recall (RECALL_MESSAGE) that names no message. Brokers of 4.9 do not
know this request, and later brokers do.
"""

from collections.abc import Callable

from rmq_ha.base.model.properties import TRAN_MSG
from rmq_ha.base.model.unserved_properties import asks_for_timer
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.recall_handle import RECALL_HANDLE, TIMED_TRANSACTIONS
from rmq_ha.client.rules.delay_levels import levels_near
from rmq_ha.client.rules.errors import NoTimers
from rmq_ha.client.send.send import Send

_MOST_BROKERS = 10_000


class TimerBrokers:
    """
    Remembers, by address, whether each broker has timers. An entry is forgotten when a send to its
    address fails.

    :param now_ms: returns ms since the epoch.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._has_timers: dict[str, bool] = {}
        self._in_transactions: dict[str, bool] = {}

    def concerns(self, send: Send) -> bool:
        """Return whether a send may go only to brokers with timers."""
        return send.is_timed

    def must_ask(self, send: Send, address: str) -> bool:
        """Return whether the broker at an address must be asked before a send goes there."""
        return address not in self._has_timers

    def question(self, send: Send) -> RemotingCommand:
        """Return the request that asks a broker whether it has timers."""
        return RemotingCommand(
            RequestCode.RECALL_MESSAGE, {"topic": send.topic.name, RECALL_HANDLE: ""}
        )

    def heard(self, response: RemotingCommand, address: str) -> None:
        """Note a broker's answer to `question`, which is an error code in any case."""
        if len(self._has_timers) >= _MOST_BROKERS:
            self._has_timers.clear()
        knows = response.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        self._has_timers[address] = knows
        self._in_transactions[address] = TIMED_TRANSACTIONS in (response.ext or {})

    def check(self, send: Send, address: str) -> None:
        """
        Check that a send may go to an address.

        :raises NoTimers: the broker there would deliver the message at once, or never.
        """
        (message,) = send.messages
        properties = message.properties
        name = send.topic.shown
        if not self._has_timers.get(address):
            near = ""
            if asks_for_timer(properties):
                near = f"{levels_near(properties, self._now_ms())}; or "
            raise NoTimers(
                f"a message for {name} was not sent: {address} has no timers, and would deliver it "
                f"at once. Take a delay that a level has: {near}let brokers of rmq-ha or RocketMQ "
                "5 have timers (timerWheelEnable=true)"
            )
        if TRAN_MSG in properties and not self._in_transactions.get(address):
            raise NoTimers(
                f"a message for {name} was not sent: {address} is a broker of RocketMQ 5, which "
                "never delivers a message that has both a transaction and a timer"
            )

    def failed(self, send: Send) -> None:
        """Note that a send failed: another broker may have taken the address."""
        self._has_timers.pop(send.address, None)
