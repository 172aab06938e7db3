"""DLedger mode: a commit log that a Raft group agrees on, also together with Java members.

Enter by `journal.GroupJournal`, which the plugin `dledger` makes. Three parts know only their
contract with the next:

- The core, `node.Node`, decides everything and does nothing. Requests, answers, `appended`,
  `synced`
  and `tick` go in; `outbox` (`actions.py`) comes out, to be done in order. `Persist` is a barrier:
  nothing behind it leaves before term and vote are on the disk.
- The ledger, `ledger.py`, has Java's files and checksums beside them. `append` is the leader's,
  `append_entry` the follower's. A failed sync ends the ledger until a restart.
- The service, `service.py`, has the port, the calls, the one timer, and carries out the outbox.

`members.Members` takes a vote, heartbeat or push only from the address of the member that it names.
The roles of a member::

    follower --(no heartbeat)--> candidate --(majority)--> leader
        ^                            |                        |
        +------ higher term ---------+------------------------+

`RoleSwitch` (`server/broker/role.py`) makes the broker slave or master. Puts end at once when the
lead is lost, and begin when everything committed is dispatched. Spec: dledger.md.
"""
