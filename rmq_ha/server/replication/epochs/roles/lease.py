"""How long a master may go on without an answer of the controllers.

Spec: controller.md, section 14, hazard 2.
"""

SHARE = 0.8
"""
The lease as a part of the time after which controllers take a silent broker for dead. The rest
allows for clocks that differ.
"""


class Lease:
    """
    The time until which no other master can have been elected. It counts from the times of
    questions, not of answers.

    The controllers' leader elects nobody in place of this broker before this broker has been silent
    for its time-out. So each answered heartbeat makes the lease longer. But no heartbeat begins a
    lease: another master may have been elected while this broker was silent. A lease begins when a
    controller says that this broker leads, in answer to a question asked after a heartbeat had been
    answered.

    With several controllers, a majority must also name the answering controller as their leader, in
    answer to questions asked after the heartbeat. A controller that lost the lead without knowing
    would answer heartbeats, too. A rmq-ha controller that is elected later waits for this broker's
    time-out before it elects a master.

    :param controllers: number of controllers.
    :param timeout: the time-out that this broker's heartbeats tell, in seconds.
    """

    def __init__(self, controllers: int, timeout: float) -> None:
        self._controllers = controllers
        self._length = SHARE * timeout
        # By controller: when the newest answered heartbeat was sent; the leader that it named, and
        # when it was asked. `_claim` is the controller that confirmed this leadership, when the
        # heartbeat before that question was sent, and when the answer came.
        self._heard: dict[str, float] = {}
        self._named: dict[str, tuple[str, float]] = {}
        self._end: float | None = None
        self._claim: tuple[str, float, float] | None = None

    def heard(self, controller: str) -> float | None:
        """
        Return when the last heartbeat that a controller answered was sent; None: it answered none.
        """
        return self._heard.get(controller)

    def reset(self) -> None:
        """End the lease for another epoch; a new one begins when the leadership is confirmed."""
        self._end = self._claim = None

    def heartbeat_answered(self, controller: str, sent: float, now: float) -> None:
        """Take a controller's answer to a heartbeat."""
        self._heard[controller] = max(sent, self._heard.get(controller, sent))
        self._go_on(now)

    def leader_named(self, controller: str, leader: str, sent: float, now: float) -> None:
        """Take a controller's answer that names the controllers' leader."""
        self._named[controller] = leader, sent
        self._go_on(now)

    def confirmed(self, controller: str, heard: float | None, now: float) -> None:
        """
        Take a controller's answer that this broker leads.

        :param heard: the value of `heard` at the time of the question.
        """
        if heard is not None:
            self._claim = controller, heard, now
            self._go_on(now)

    def holds(self, now: float) -> bool:
        """Whether no other master can have been elected."""
        return self._end is not None and now < self._end

    @property
    def proven_until(self) -> float:
        """
        Return when the newest question was sent whose answer proves that no other master was
        elected.
        """
        return float("-inf") if self._end is None else self._end - self._length

    def _go_on(self, now: float) -> None:
        # Only a claim begins a lease. A running lease grows with each answered heartbeat, as far as
        # the controller that answered certainly led then.
        if self._claim is not None:
            leader, heard, received = self._claim
            if self._led_at(leader) >= received:
                self._end = max(self._end or 0.0, heard + self._length)
        if self._end is not None and now < self._end:
            for leader, heard in self._heard.items():
                self._end = max(self._end, min(heard, self._led_at(leader)) + self._length)

    def _led_at(self, leader: str) -> float:
        """Return the time up to which a controller certainly led the controllers."""
        if self._controllers == 1:
            return float("inf")
        times = sorted(sent for named, sent in self._named.values() if named == leader)
        most = self._controllers // 2 + 1
        return times[-most] if len(times) >= most else float("-inf")
