"""rmq-ha: config."""
