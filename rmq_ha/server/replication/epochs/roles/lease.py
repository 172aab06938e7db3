"""How long a master may go on without having heard of the controllers.

Spec: controller.md, section 14, hazard 2.
"""

SHARE = 0.8
"""Of the time after which controllers take a silent broker for dead; the rest is for clocks."""


class Lease:
    """
    Until when nobody else can have been elected. All times that count are those of questions.

    The controller that leads elects nobody in our place before it has heard nothing for our
    time-out. So each heartbeat that it answered makes the lease longer, but none begins one:
    while we were silent, somebody may have been elected. It begins when a controller says that we
    lead, to a question that was asked after a heartbeat had been answered.

    Where there are several, most of them have to have named the one that answered, asked after
    that: who was deposed and does not know it answers, too. One that is elected later waits for
    our time-out before it elects, if it is one of ours.

    :param controllers: how many there are.
    :param timeout: what our heartbeats say, in seconds.
    """

    def __init__(self, controllers: int, timeout: float) -> None:
        self._controllers = controllers
        self._length = SHARE * timeout
        self._heard: dict[str, float] = {}
        self._named: dict[str, tuple[str, float]] = {}
        self._end: float | None = None
        self._claim: tuple[str, float, float] | None = None

    def heard(self, controller: str) -> float | None:
        """When the last heartbeat left that it has answered."""
        return self._heard.get(controller)

    def reset(self) -> None:
        """Another epoch: there is none until it is confirmed."""
        self._end = self._claim = None

    def heartbeat_answered(self, controller: str, sent: float, now: float) -> None:
        """A controller answered a heartbeat."""
        self._heard[controller] = max(sent, self._heard.get(controller, sent))
        self._go_on(now)

    def leader_named(self, controller: str, leader: str, sent: float, now: float) -> None:
        """A controller said who leads them."""
        self._named[controller] = leader, sent
        self._go_on(now)

    def confirmed(self, controller: str, heard: float | None, now: float) -> None:
        """
        A controller said that we lead.

        :param heard: as it said when we asked.
        """
        if heard is not None:
            self._claim = controller, heard, now
            self._go_on(now)

    def holds(self, now: float) -> bool:
        """Nobody else can have been elected."""
        return self._end is not None and now < self._end

    @property
    def proven_until(self) -> float:
        """When the newest question left whose answer proves that nobody else was elected."""
        return float("-inf") if self._end is None else self._end - self._length

    def _go_on(self, now: float) -> None:
        if self._claim is not None:
            leader, heard, received = self._claim
            if self._led_at(leader) >= received:
                self._end = max(self._end or 0.0, heard + self._length)
        if self._end is not None and now < self._end:
            for leader, heard in self._heard.items():
                self._end = max(self._end, min(heard, self._led_at(leader)) + self._length)

    def _led_at(self, leader: str) -> float:
        """Up to when it led for certain."""
        if self._controllers == 1:
            return float("inf")
        times = sorted(sent for named, sent in self._named.values() if named == leader)
        most = self._controllers // 2 + 1
        return times[-most] if len(times) >= most else float("-inf")
