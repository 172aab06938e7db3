"""rmq-ha: filter."""
