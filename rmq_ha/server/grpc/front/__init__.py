"""The front of the gRPC door, which serves the methods of RocketMQ 5's service on a broker.

Read `service` first: it has the methods. `sends` checks messages and turns them into what a broker
stores; `deliveries` does the reverse. `consumers` has the methods of consumers, `receives` the
messages that these pop, and `renewals` the leases that are kept for them. `clients` has the clients
and their settings, `telemetry` their streams, `routes` the queues. The front calls the broker by
`rmq_ha.server.door.BrokerVerbs`, and the transport by `rmq_ha.server.grpc.face`.

Only a broker whose `grpcServerPort` is set imports this package, because it needs protobuf.
"""
