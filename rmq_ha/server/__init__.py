"""The servers: store, replication, broker, name server and controller."""
