"""rmq-ha: model."""
