"""rmq-ha: ha."""
