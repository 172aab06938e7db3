"""The servers: message store, replication, broker, name server and controller.

`broker` assembles a broker from `store`, one kind of journal (in `replication.classic`,
`replication.epochs` or `dledger`) and the tables and processors of its own. `namesrv` and
`controller` are servers of their own. Nothing here imports the reactor: `ops.app` runs these
servers.
"""
