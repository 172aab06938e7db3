"""rmq-ha: `rmqha-admin`, the commands for people and scripts."""
