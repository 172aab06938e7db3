"""ComparingBrokers: brokers that compare ids, so that a repeated send is stored once.

A broker of rmq-ha says so in its answer to a heartbeat that names no group. A broker of RocketMQ
answers such a heartbeat without saying it.
"""

from rmq_ha.base.wire.bodies import HeartbeatData
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.duplicates import WINDOW
from rmq_ha.client.rules.errors import BrokerRefused, DuplicatesPossible
from rmq_ha.client.send.send import Send

_MARGIN = 2
"""
A broker must remember ids for this many times the time of a send, because it may read a repetition
late.
"""
_MOST_BROKERS = 10_000


class ComparingBrokers:
    """
    Remembers, by address, for how many ms each broker compares ids: 0 if it never does. An entry is
    forgotten when a send to its address fails.
    """

    def __init__(self, client_id: str) -> None:
        self._question = HeartbeatData(client_id, [], []).encode()
        self._windows: dict[str, int] = {}

    def concerns(self, send: Send) -> bool:
        """Return True: every send may go only to brokers that compare ids."""
        return True

    def must_ask(self, send: Send, address: str) -> bool:
        """
        Return whether the broker at an address must be asked before a send goes there.

        A message that a broker may have stored already makes the client ask each time, as another
        broker or process may have taken the address.
        """
        return send.is_out or address not in self._windows

    def question(self, send: Send) -> RemotingCommand:
        """Return the request that asks a broker whether it compares ids."""
        return RemotingCommand(RequestCode.HEART_BEAT, None, self._question)

    def heard(self, response: RemotingCommand, address: str) -> None:
        """
        Note a broker's answer to `question`.

        :raises BrokerRefused: the broker answered with an error code.
        """
        if response.code:
            raise BrokerRefused(response.code, response.remark, address)
        text = (response.ext or {}).get(WINDOW, "")
        if len(self._windows) >= _MOST_BROKERS:
            self._windows.clear()
        self._windows[address] = int(text) if text.isdecimal() else 0

    def check(self, send: Send, address: str) -> None:
        """
        Check that a send may go to an address.

        :raises DuplicatesPossible: the broker there might store a repetition of the send twice.
        """
        window_ms = self._windows.get(address, 0)
        lasts_ms = (send.deadline - send.since) * 1000
        if window_ms >= lasts_ms * _MARGIN:
            return
        if not window_ms:
            reason = (
                "it does not compare ids: a broker of rmq-ha does with duplicateWindowMillis, one"
                " of RocketMQ never"
            )
        else:
            reason = (
                f"it knows for {window_ms} ms what is stored (duplicateWindowMillis), and this send"
                f" may go on for {lasts_ms:.0f} ms: that has to be {_MARGIN} times as long at"
                " least, or delivery_timeout_ms (timeout_ms) shorter"
            )
        done = "may be stored, and is not repeated" if send.is_out else "was not sent"
        raise DuplicatesPossible(
            f"a message for {send.topic.shown} {done}: {address} would store a repetition twice, as"
            f" {reason}; or take idempotent=False"
        )

    def failed(self, send: Send) -> None:
        """
        Note that a send failed: forget what its broker said of itself. If the broker may have the
        message, the send has to stay at its queue.
        """
        self._windows.pop(send.address, None)
        if send.is_out:
            send.fixed_queue = send.queue
