"""Replication in controller mode: the controllers elect the master, and each reign is an epoch.

Enter by `journal.EpochJournal`, which the plugin `controller` makes, and by
`service.AutoSwitchHAService`, which carries out the controllers' decisions one after the other.

- `master.MasterRole` is what a broker does while it leads, `slave.SlaveRole` what it does while
  another one leads. `roles` holds the conversation with the controllers, who decide which it is.
- `feed.EpochFeed` is the master's half of a connection, `replica.EpochReplica` the slave's. The
  slave asks once more for what nobody has confirmed to it, and compares.
- `sync_state.SyncState` is what a master knows in one epoch: who is in sync, what may be read,
  which puts are kept. A put waits for each new member of the set before the controllers are asked.
- `replica.EpochReplica.task` is a barrier: a cut or a new epoch is on the disk before the next byte
  is appended or reported.
- `history.EpochHistory` says which epoch wrote which part of the log, in memory and on the disk.
- `put_refusal` says in words why a broker takes no messages.

The roles of a broker in this mode::

    unknown --(Follow)--> slave --(Lead)--> master with a lease --(lease ends)--> refuses puts
                            ^                      |
                            +------(Follow)--------+

Spec: controller.md.
"""
