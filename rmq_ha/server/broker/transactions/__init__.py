"""Half messages: their END, and the checks of those that no producer has settled.

Enter by `service.TransactionalMessageCheckService`. The broker's END processor finds a half message
by `lookup`, and the rounds of `check` walk along the half queue. The first that claims a half
message in `fates.Fates` settles it. What becomes of one half message (`Fate`, `Verdict`)::

    OPEN --END: commit----> ENDED: the real message and an op message are stored
      |  --END: rollback--> ENDED: an op message is stored
      |
      +--a round, judge---> LATER:   stays OPEN, it is too young; the round ends here
                            IMMUNE:  MOVED, a copy at the end of the queue is OPEN
                            CHECK:   MOVED in the same way, and its producer group is asked
                            DISCARD: MOVED, to TRANS_CHECK_MAX_TIME_TOPIC, with a log line

Spec: store.md, chapter 11.
"""
