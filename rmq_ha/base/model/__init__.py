"""RocketMQ's values without bytes: messages, properties, statuses, addresses, names.

No module here does I/O or imports Twisted.
"""
