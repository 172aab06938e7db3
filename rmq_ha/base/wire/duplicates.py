"""Fields of answers by which a broker of rmq-ha says that it compares the ids of messages.

RocketMQ's clients and brokers do not know them. They are left out where no ids are compared.
"""

DUPLICATE = "duplicate"
"""`true` in the answer to a send: the message was stored by an earlier send, and not again."""

WINDOW = "duplicateWindowMillis"
"""
In the answer to a heartbeat: for how many ms a stored message is known. Missing: ids are not
compared.
"""
