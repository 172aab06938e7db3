"""Replication in controller mode: the controllers elect the master, and each reign is an epoch.

Enter by `journal.EpochJournal`, which the plugin `controller` makes, and by
`ha_service.AutoSwitchHAService`, which carries out the controllers' decisions one after the other.

- `feed.EpochFeed` is the master's half of a connection, `replica.EpochReplica` the slave's. The
  slave
  asks once more for what nobody has confirmed to it, and compares.
- `sync_state.SyncState` is what a master knows in one epoch: who is in sync, what may be read,
  which
  puts are kept. A put waits for each new member of the set before the controllers are asked.
- `replica.EpochReplica.task` is a barrier: a cut or a new epoch is on the disk before the next byte
  is appended or reported.
- `files.EpochFile` says which epoch wrote which part of the log.
- `manager.ReplicasManager` is the broker's side of the controllers: time, answers and notices go
  in,
  actions come out. `lease.Lease` says until when no other master can have been elected.

The roles of a broker in this mode::

    unknown --(Follow)--> slave --(Lead)--> master with a lease --(lease ends)--> refuses puts
                            ^                      |
                            +------(Follow)--------+

Spec: controller.md.
"""
