"""rmq-ha: broker."""
