"""Consumers: how messages get from a queue to a listener or a poll, and how a group shares queues.

Enter at `push_consumer` and `lite_pull_consumer`. The states of a consumer, and of one queue while
a push consumer runs::

    new --start--> starting --> running --stop--> stopping --> stopped
     |                 +---(stop, or it fails)-------^            ^
     +---------------------------- stop -------------------------+

    not taken --take (orderly: lock)--> PullLoop fills ProcessQueue --> Caller --> listener
        ^                                 |    |                          |
        |                                 |    |                          +--> OffsetStore
        |     give_up, by the Rebalancer; |    | may_pull says no, the cache is full, an error:
        |     reset; offset_moved         v    +---> rests, then pulls again
        +--(listener ended, offset kept)-- dropped

A dropped `ProcessQueue` changes nothing any more, even if listener calls with its messages still
run. A queue that is taken again gets a new `ProcessQueue`.
"""
