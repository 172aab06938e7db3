"""RocketMQ 5's AutoSwitch replication: epochs, truncation at the handshake, sets of replicas."""
