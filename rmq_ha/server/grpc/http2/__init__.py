"""The server's side of HTTP/2, without I/O: it takes bytes, and gives events and bytes to send.

Enter by `engine.Http2Server`. Nothing here knows of gRPC. Header blocks are decoded by the package
`hpack`; this side's own blocks need no state, so `headers` writes them itself.

- `frames`: cuts and makes frames. `headers`: header blocks both ways.
- `budget`: how many useless frames a peer may send before its connection is closed.
- `streams`: the state of one stream, and the bytes that wait until the peer takes them.

The package `h2` could do most of this, and tests use it as the client. But after its GOAWAY no
open stream can be answered, one stream too many ends its connection, and a call costs four times
the processor time.
"""
