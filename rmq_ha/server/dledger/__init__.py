"""DLedger mode: a commit log that a Raft group agrees on, also together with Java members.

The entry point is `journal.GroupJournal`, which the plugin `dledger` makes. Each of the three parts
knows only its contract with the next part:

- The core, `node.Node`, decides everything and does no I/O. Requests, answers, `appended`,
  `synced` and `tick` go in. Actions (`actions.py`) come out in `outbox`, to be done in this order.
  `Persist` is a barrier: no later action is done before term and vote are on the disk.
- The ledger, `ledger.py`, has Java's files, and files with checksums of its own. A leader calls
  `append`, a follower `append_entry`. After a failed sync the ledger takes no entries until a
  restart.
- The service, `service.py`, has the port, the calls to the other members and the one timer, and
  carries out the outbox.

`members.Members` accepts a vote, heartbeat or push only from the address of the member that the
request names. The roles of a member::

    start --> CANDIDATE --(votes of a quorum)--> LEADER
               |  ^  ^                             |
               |  |  +--(no quorum answers, or-----+
               |  |      a higher term is in use)
               |  +---(no heartbeat, a higher term,
               |       or it was asked to lead)----+
               |                                   |
               +--(heartbeat of this term's--> FOLLOWER
                   leader)

`RoleSwitch` (`server/broker/role.py`) makes the broker a slave or a master. A member that loses the
lead refuses puts at once. A new leader takes puts when everything committed is dispatched. Spec:
dledger.md.
"""
