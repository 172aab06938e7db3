"""Plain access control: who may do what, from files that RocketMQ 4.9 reads too."""
