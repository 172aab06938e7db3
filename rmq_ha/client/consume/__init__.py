"""From a queue to a listener, or to whoever polls; and what a group's members agree on.

Enter at `push_consumer` and `lite_pull_consumer`. A queue's way through a push consumer::

    Rebalancer --take--> PullLoop fills ProcessQueue --> Caller --> listener
        |                                                    |
        +--give_up--> ProcessQueue is dropped                +--> OffsetStore (all below is
consumed)

A dropped `ProcessQueue` changes nothing any more, whatever still runs for it. A queue that is taken
again gets a new one.
"""
