"""Which brokers compare ids, so that a send may be repeated there and is stored once.

They say so themselves, when they answer a heartbeat that names no group: one that RocketMQ's
brokers answer as well, and say nothing.
"""

from rmq_ha.base.wire.bodies import HeartbeatData
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.duplicates import WINDOW
from rmq_ha.client.rules.errors import BrokerRefused, DuplicatesPossible
from rmq_ha.client.send.send import Send

_MARGIN = 2
"""As many times as long as a send goes on, at least: its last repetition may lie unread a while."""
_MOST_BROKERS = 10_000


class ComparingBrokers:
    """What brokers said of themselves, by address, as long as nothing failed there."""

    def __init__(self, client_id: str) -> None:
        self._question = HeartbeatData(client_id, [], []).encode()
        self._windows: dict[str, int] = {}

    def must_ask(self, send: Send, address: str) -> bool:
        """
        Before this send goes there: whoever is there now has not been asked.

        A repetition asks each time: another broker, or another process, may have taken the address.
        """
        return send.is_out or address not in self._windows

    def question(self) -> RemotingCommand:
        """To be asked of that address."""
        return RemotingCommand(RequestCode.HEART_BEAT, None, self._question)

    def heard(self, response: RemotingCommand, address: str) -> None:
        """
        What it answered.

        :raises BrokerRefused: it answers nothing at the moment, or not us.
        """
        if response.code:
            raise BrokerRefused(response.code, response.remark, address)
        text = (response.ext or {}).get(WINDOW, "")
        if len(self._windows) >= _MOST_BROKERS:
            self._windows.clear()
        self._windows[address] = int(text) if text.isdecimal() else 0

    def check(self, send: Send, address: str) -> None:
        """
        It may go there.

        :raises DuplicatesPossible: it would be stored twice there, if it had to be repeated; or
            this is a repetition already.
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
        """No answer, or one that says no: who is there is not known, and it has to stay there."""
        self._windows.pop(send.address, None)
        if send.is_out:
            send.fixed_queue = send.queue
