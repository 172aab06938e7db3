"""The port of RocketMQ 5's clients. They call the service `apache.rocketmq.v2.MessagingService`.

Enter by `face`: it says how a front declares its methods, and what the transport gives to them.
Three parts stand on each other:

- `http2/`: bytes of a connection to events of its streams, and back; the limits against floods.
- `wire/`: RocketMQ's messages in a private descriptor pool, and gRPC's frames, deadlines and codes.
- `calls`: the calls of one connection, without I/O. `protocol` and `server` own sockets and timers.

The front stands on `face` and `wire/`, and knows nothing of HTTP/2.
"""
