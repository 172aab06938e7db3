"""The controllers of RocketMQ 5: they elect the master of a set of brokers.

Enter by `service`, the server. `replicas.ReplicasInfoManager` decides over the tables of brokers
and
their heartbeats, without I/O and clock: a `Decision` is an answer and the event that it depends on.
`protocol.ControllerRequests` decides one request after the other; the next one begins when the
event
of the one before is applied. `group.ControllerGroup` drives the Raft core of `dledger`: `propose`
fires when a majority has the entry on the disk and it is applied.

The tables are the result of the Raft log. Heartbeats are in no log: each controller hears its own.
`access` says whose requests are taken. Spec: controller.md.
"""
