"""
SendWays: counts the sends that were handled in runs and one by one, so that operators see it if
many take the slow way.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class SendWays:
    """
    Numbers of sends since the start.

    A run is a group of ordinary sends that came together. Its records are made ("laid out") by one
    call.

    :ivar run: sends that were laid out together with others of their run, or alone in a run.
    :ivar limits: sends of runs that had to be laid out one by one, at the end of a file or because
        one of them was too large.
    :ivar general: requests that were handled one by one. The next three are parts of this number.
    :ivar policy: sends of runs while the broker takes no runs, or is overloaded.
    :ivar queue: sends of runs to a topic or queue that needs a closer look.
    :ivar repeated: sends of runs that may be stored already (duplicateWindowMillis).
    """

    run: int = 0
    limits: int = 0
    general: int = 0
    policy: int = 0
    queue: int = 0
    repeated: int = 0

    def counts(self) -> dict[str, int]:
        """Return the number of sends by way; each is counted once."""
        known = {"policy": self.policy, "queue": self.queue, "repeated": self.repeated}
        unusual = self.general - sum(known.values())
        return {"run": self.run, "limits": self.limits, **known, "unusual": unusual}
