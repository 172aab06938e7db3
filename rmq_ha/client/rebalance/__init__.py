"""RocketMQ 4.9's strategies that give queues to members, and what a new share changes."""
