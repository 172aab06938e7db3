"""rmq-ha: client."""
