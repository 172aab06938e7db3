"""TLS for every connection: its files, the checks of peers, and a layer above the transport.

The layer is our own, because Twisted's waits a reactor turn with small writes. `session.TlsSession`
is OpenSSL with bytes in and bytes out. `ServerTls` and `ClientTls` have the rules of remoting,
`HaTls` those of replication. Files are read as a whole: `reload()` keeps the old ones if anything
does not fit. `TlsDoor` and `connect_tls` build the inner protocol only after the handshake.
"""
