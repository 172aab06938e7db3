"""POP consumption: the broker hands messages to consumers, and keeps a lease of each of them.

A message is *out* while a consumer has a lease of it. The *lease name* is `pop_ms`, the time in ms
that the broker gave to the pop. Every change is an entry of a journal in the commit log, so all
replicas come to the same state.

Request processors call the methods of `face.Pops`. Enter at `service.PopService`, which implements
them.

Spec: pop.md, sections 13 to 16.
"""
