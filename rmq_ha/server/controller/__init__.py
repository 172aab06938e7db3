"""The controllers of RocketMQ 5: they elect the master of a set of brokers.

The entry point is `service`, the server. `replicas.ReplicasInfoManager` decides over the tables of
brokers and their heartbeats, without I/O and clock. Its `Decision` is an answer and the event that
the answer depends on. `protocol.ControllerRequests` decides one request after the other; the next
one begins when the event of the previous one is applied. `group.ControllerGroup` drives the Raft
core of `dledger`: its `propose` fires when a majority has the entry on the disk and it is applied.

The tables are the result of the Raft log. Heartbeats are in no log: each controller receives them
itself. `access` decides whose requests are accepted.

The states of one set of brokers, and the events in the log that change them::

    no set --BrokerIdApplied--> never elected (master_epoch 0)
      ^                              |
      |                              | MasterElected(id)
      |     MasterElected(id)        v
      |    +---------------------> master --+ MasterElected(another id), SyncStateSetAltered,
      |    |                         |   ^  | AddressUpdated
      |    |                         |   +--+
      |    +--- no master <----------+ MasterElected(None): the master is silent, and no other
      |             |                | broker in sync is alive
      +-------------+----------------+ BrokerDataCleaned, of all brokers

Each election raises `master_epoch`. A set without a master gets one when a broker in sync is alive
again: the controllers look for that every `scanInactiveMasterInterval`, and brokers ask for it.
Spec: controller.md.
"""
