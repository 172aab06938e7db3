"""rmq-ha: testing."""
