"""Who consumes which queue: the strategies of RocketMQ 4.9 and what follows from a new share."""
