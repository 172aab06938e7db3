"""The limits and settings of the front."""

from dataclasses import dataclass

MOST_OF_A_REQUEST = 1000
"""Most messages of one SendMessage, and most receipts of one AckMessage."""
SERVED_A_TURN = 32
"""How many of them are served in one turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontSettings:
    """
    The settings of the broker's configuration that the front uses.

    :ivar max_body: bytes of the largest body.
    :ivar max_properties: most properties that a user may give to a message.
    :ivar max_properties_size: most bytes of all these names and values, the tag and the keys.
    :ivar max_group_size: a message group must have fewer bytes.
    :ivar max_recovery_s: longest time before a producer is asked about a transaction, seconds.
    :ivar max_delay_ms: longest delay of a message.
    :ivar default_type: the message type of topics that have none of their own.
    :ivar checks_types: whether a message must have the type of its topic.
    :ivar producer_attempts: how often a producer tries to send a message; the fields behind it are
        the pauses between its attempts.
    """

    max_body: int = 4 << 20
    refuses_empty_bodies: bool = True
    max_properties: int = 128
    max_properties_size: int = 16 << 10
    max_group_size: int = 64
    max_recovery_s: int = 3600
    max_delay_ms: int = 86_400_000
    default_type: str = "MIXED"
    checks_types: bool = True
    producer_attempts: int = 3
    backoff_initial_ms: int = 10
    backoff_max_ms: int = 1000
    backoff_multiplier: int = 2
