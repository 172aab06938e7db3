"""Fields of answers by which a broker of ours tells that it compares messages' ids.

RocketMQ's clients and brokers do not know them: they are left out where nothing is compared.
"""

DUPLICATE = "duplicate"
"""`true` in the answer to a send: the message was stored before, and is not stored again."""

WINDOW = "duplicateWindowMillis"
"""In the answer to a heartbeat: how long a stored message is known; missing: not at all."""
