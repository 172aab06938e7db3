"""rmq-ha: processors."""
