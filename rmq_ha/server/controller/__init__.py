"""The controllers of RocketMQ 5: they elect the master of a set of brokers.

The entry point is `service`, the server. `replicas.ReplicasInfoManager` decides over the tables of
brokers and their heartbeats, without I/O and clock. Its `Decision` is an answer and the event that
the answer depends on. `protocol.ControllerRequests` decides one request after the other; the next
one begins when the event of the previous one is applied. `group.ControllerGroup` drives the Raft
core of `dledger`: its `propose` fires when a majority has the entry on the disk and it is applied.

The tables are the result of the Raft log. Heartbeats are in no log: each controller receives them
itself. `access` decides whose requests are accepted. Spec: controller.md.
"""
