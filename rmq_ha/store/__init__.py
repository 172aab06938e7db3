"""rmq-ha: store."""
