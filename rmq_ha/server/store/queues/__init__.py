"""Consume queues: the places in the log of the messages of each queue of a topic.

Enter at `table.ConsumeQueueTable`, which has one `queue.ConsumeQueue` for each queue.
"""
