"""The front of the gRPC door: what the methods of RocketMQ 5's service mean to a broker.

Read `service` first: it has the methods. `sends` checks messages and turns them into what a broker
stores; `stored` does the reverse. `clients` has the clients and their settings, `telemetry` their
streams, `routes` the queues. The front knows the broker by `rmq_ha.server.door.BrokerVerbs`, and
the transport by `rmq_ha.server.grpc.face`.

Only a broker whose `grpcServerPort` is set imports it, as it needs protobuf.
"""
