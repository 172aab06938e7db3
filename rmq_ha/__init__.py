"""rmq-ha: a broker, a name server and a client that speak RocketMQ 4.9."""

__version__ = "0.2.0"
