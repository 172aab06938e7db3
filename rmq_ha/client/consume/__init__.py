"""Consumers: how messages get from a queue to a listener or a poll, and how a group shares queues.

Enter at `push_consumer` and `lite_pull_consumer`. A queue's way through a push consumer::

    Rebalancer --take--> PullLoop fills ProcessQueue --> Caller --> listener
        |                                                    |
        +--give_up--> ProcessQueue is dropped                +--> OffsetStore (all below is
consumed)

A dropped `ProcessQueue` changes nothing any more, even if listener calls with its messages still
run. A queue that is taken again gets a new `ProcessQueue`.
"""
