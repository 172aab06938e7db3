"""Replication of a classic pair, as RocketMQ 4.9 does it: a master feeds slaves.

The entry points are `journal.ClassicJournal`, which the plugin `classic` makes, and
`service.HAService`, which joins the listener and the link. `feed.Feed` is the master's half of a
connection, `replica.Replica` the slave's; both are pure.

- *A slave's report proves only bytes that it was sent on this connection, or that a checksum
  covers.* `Feed.acked` is the offset that the slave reports, from which the lag is computed. Puts
  rely on `Feed.proven`.
- *A slave compares before it appends.* `LogComparison` compares the bytes from the master with the
  slave's log. A `DivergedTail` makes `ClassicLink` set the tail aside. Without such a proof,
  nothing is cut.
- *A stranger meets no feed.* `Entrance` checks the address, `TlsDoor` the certificate and
  `SecretDoor` the shared secret; only then a feed is built.

The states of a slave's link::

    no address --set_address--> connecting <--(soon)--- disconnected, unreachable
                                 |  ^   ^
                                 |  |   +--(after 5 s)-- diverged, stranded, unreadable, disk
                                 |  +------(cut)-------- setting aside
                                 v
    connected --(first frame)--> comparing, ahead --(all bytes are equal)--> following
        |                             |                                         |
        +---- lost: the reason decides which state on the right follows --------+

A log that ends where the comparison would begin goes from `connected` to `following` at once. A
fault (`diverged`, `stranded`, `unreadable`, `disk`) is shown until the link follows again. `stop`
leads from every state to `stopped`.

Spec: ha.md.
"""
