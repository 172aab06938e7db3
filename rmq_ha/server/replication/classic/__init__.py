"""Replication of a classic pair, as RocketMQ 4.9 does it: a master feeds slaves.

Enter by `journal.ClassicJournal`, which the plugin `classic` makes, and by `service.HAService`,
which joins the listener and the link. `feed.Feed` is the master's half of a connection,
`replica.Replica` the slave's; both are pure.

- *A slave vouches only for bytes that it was sent on this connection, or that a checksum proved.*
  `Feed.acked` is the slave's own word (for lag); `vouched` is what puts believe.
- *A slave compares before it appends.* `Comparison` compares what comes with what is there. A
  `DivergedTail` makes `ClassicLink` set the tail aside. Nothing is cut on less proof.
- *A stranger meets no feed.* `Entrance` asks for the address, `TlsDoor` for the certificate,
  `SecretDoor` for the shared secret; only then a feed is built.

The states of a slave's link::

    no address -> connecting -> handshake -> comparing -> following
                      ^             |            |           |
                      |             v            v           |
                      +--- waits <- refused   set aside      |
                      +-------------- connection lost <------+

Spec: ha.md.
"""
