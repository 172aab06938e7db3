"""rmq-ha: wire."""
