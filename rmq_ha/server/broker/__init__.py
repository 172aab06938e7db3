"""A broker: tables, request processors, timers, and the assembly of all its parts.

Enter by `broker.Broker`: `start()` and `stop()` return Deferreds, and the attributes (`store`,
`topics`, `groups`, `consumer_offsets` ...) are its parts. `assembly` builds the processors from
these parts; `routes` adds their request handlers to both ports.

- `processors/`: one class a subject, one method a request code.
- `tables/`: topics, groups, offsets and filters, and the files that keep them.
- `transactions/`: half messages, their decision, and the check-back.
- `role`: makes this broker a master or a slave when an elector says so.
- `hold`: pulls that wait for a message. `registration`: the requests to name servers. `slave`: a
  slave's copies of its master's tables.

How `role.RoleSwitch` changes the role, one change at a time, as the elections of the journal say::

                          lead(term)
    slave, refuses puts -------------> waits until the log is settled and dispatched
      ^   ^                                 |                      |
      |   +---(the leadership ended)--------+                      | _change_to_master
      |                                                            v
      +------------------- follow(), stand() ------------ master, takes puts

A change to the master that fails is tried again each second while the leadership lasts. A broker
of a pair keeps the role in its configuration until the next start (`LastingRole`).

A setting that may change at run time is read where it is used, never copied.
"""
