"""rmq-ha: controller."""
