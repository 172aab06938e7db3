"""Replication of a commit log, byte by byte, from a master to its slaves, in two dialects.

`classic` speaks the dialect of RocketMQ 4.9, in which the configuration names the master. `epochs`
speaks the dialect of RocketMQ 5, in which controllers elect the master. They differ in what proves
that two logs have a common past, and in when a put counts as kept. This package holds the code that
both share:

- `listener.ReplicationListener` is the replication port of a broker, and `link.MasterLink` a
  slave's connection to its master.
- `entrance.Entrance` meets a connection at the master, and `connector.MasterConnector` opens one at
  the slave. They settle addresses (`haAllowedSlaves`), TLS (`tls.ha.*`) and the shared secret
  (`haSecret`) before a feed or a replica exists. `door` and `secret` prove the secret.
- `protocol` holds the Twisted protocols of both ends. Each protocol drives a pure core of one
  dialect, which extends `feed.FeedBase` or `replica.ReplicaBase`.
- `waiting.GroupTransfer` knows which put waits for which offset. `lag.AppendTimes` knows how many
  seconds a slave is behind. `statistics` holds the figures for operators.
- `places` finds records in a log that is read from any offset. `refetch_refusal` decides whether a
  slave may give its store up and copy all of its master's log.
"""
