"""The name server: it knows which broker has which topic, and the brokers' addresses.

The entry point is `namesrv.Namesrv` with `start()`, `stop()` and `port`. `routes` is
the table, without I/O. `claims` decides which of two brokers holds a name and id. Spec:
remoting.md.
"""
