"""The limits and settings of the front."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontSettings:
    """
    What the broker's configuration says to the front.

    :ivar max_delay_ms: longest delay of a message.
    :ivar default_type: the type of topics that do not say theirs.
    :ivar checks_types: whether a message must have its topic's type.
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
