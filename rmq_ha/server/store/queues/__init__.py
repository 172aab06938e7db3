"""Consume queues: of each queue of a topic, where its messages are in the log.

Enter at `table.ConsumeQueueTable`, which has one `queue.ConsumeQueue` a queue.
"""
