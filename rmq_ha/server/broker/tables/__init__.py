"""rmq-ha: tables."""
