"""The port for clients of RocketMQ 5, which call `apache.rocketmq.v2.MessagingService` by gRPC.

The *front* is the part that serves the methods of the service; the *transport* is all the rest.
Enter by `face`: it says how the front declares its methods, and what the transport gives to them.
The transport has three parts, of which the last one uses the other two:

- `http2/`: turns bytes of a connection into events of its streams, and back; limits floods.
- `wire/`: RocketMQ's messages in a private descriptor pool, and gRPC's frames, deadlines and codes.
- `calls`: the calls of one connection, without I/O. `protocol` and `server` own sockets and timers.

The front stands on `face` and `wire/`, and knows nothing of HTTP/2.
"""
