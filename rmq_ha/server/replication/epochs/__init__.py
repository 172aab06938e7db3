"""
Replication in controller mode: the controllers elect the master, and each election begins an epoch.

The entry points are `journal.EpochJournal`, which the plugin `controller` makes, and
`service.AutoSwitchHAService`, which carries out the controllers' decisions one after the other.

- `master.MasterRole` does a master's work, `slave.SlaveRole` a slave's. `roles` holds the
  conversation with the controllers, who decide which role this broker has.
- `feed.EpochFeed` is the master's half of a connection, `replica.EpochReplica` the slave's. A slave
  asks again for bytes that nobody has confirmed, and compares them with its own.
- `sync_state.SyncState` is a master's knowledge in one epoch: which brokers are in sync, which
  messages may be read and which puts are kept. A put waits for each new member of the set before
  the controllers are asked to add that member.
- `replica.EpochReplica.task` is a barrier: a cut or a new epoch is on the disk before the next byte
  is appended or reported.
- `history.EpochHistory` says which epoch wrote which part of the log, in memory and on the disk.
- `put_refusal` says in words why a broker takes no messages.

The states of a slave's link (`roles` draws the roles)::

    connecting --(906 answered, port open)--> handshake --(the logs have one past)--> following
       ^  ^  ^                                    |                                       |
       |  |  +---------(lost: soon)---------------+---------------------------------------+
       |  |                                       |
       |  +--(after 5 s: fault)-------------------+ nothing in common, diverged, disk
       +-----(after 5 s)-- stranded <-------------+ the master has deleted what follows; if the
                                                    store may be given up, it is copied anew

Spec: controller.md.
"""
