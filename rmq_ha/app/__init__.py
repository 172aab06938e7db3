"""rmq-ha: app."""
