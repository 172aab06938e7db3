"""The bytes of gRPC: RocketMQ's messages, the frames around them, deadlines and status codes.

`table` has the numbers, names and types of all messages; `messages` makes the classes. These two
need protobuf (`rmq-ha[grpc]`), so only a server whose `grpcServerPort` is set imports `messages`.
"""
