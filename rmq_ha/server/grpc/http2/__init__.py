"""The server's side of HTTP/2, without I/O: bytes of a connection in, events and bytes out.

Enter by `engine.Http2Server`. It knows nothing of gRPC. Header blocks are decoded by the package
`hpack`; this side's own blocks need no state, so `headers` writes them itself.

- `frames`: cuts and makes frames. `headers`: header blocks both ways.
- `budget`: what a peer may do in vain before its connection is closed.
- `streams`: the state of one stream, and the bytes that wait until the peer takes them.

The package `h2` would do most of this, and tests use it as the other end. But after its GOAWAY no
open stream can be answered, one stream too many ends its connection, and a call costs four times
the processor time.
"""
