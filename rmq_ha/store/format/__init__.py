"""rmq-ha: format."""
