"""rmq-ha: host."""
