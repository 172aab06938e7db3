"""rmq-ha: rmq_ha."""
