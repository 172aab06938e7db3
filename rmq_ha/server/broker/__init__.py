"""A broker: tables, request processors, timers, and the assembly of all its parts.

Enter by `broker.Broker`: `start()` and `stop()` return Deferreds, and the attributes (`store`,
`topics`, `groups`, `consumer_offsets` ...) are its parts. `assembly` gives the processors what they
use; `routes` gives both ports their functions.

- `processors/`: one class a subject, one method a request code.
- `tables/`: topics, groups, offsets and filters, and the files that keep them.
- `transactions/`: half messages, their decision, and the check-back.
- `role`: makes this broker a master or a slave when an elector says so.
- `hold`: pulls that wait for a message. `registration`: name servers. `slave`: a slave's copies.

A transaction's message::

    half message (RMQ_SYS_TRANS_HALF_TOPIC) --COMMIT--> real message + op message
          |                                 --ROLLBACK--> op message
          +--(no answer)--> asked again, transactionCheckMax times --> discarded, with a log line

What may change at run time is read where it is used, never copied.
"""
