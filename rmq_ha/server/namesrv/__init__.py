"""The name server: which broker has which topic, and where it is.

Enter by `controller.NamesrvController`: `start()`, `stop()`, `port`. `routes` is the table, without
I/O. `claims` decides which of two brokers holds a name and id. Spec: remoting.md.
"""
