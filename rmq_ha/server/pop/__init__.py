"""POP consumption: which message is out with whom, and until when. The log alone decides.

Request processors are to call what `face.Pops` declares. Enter at `service.PopService`, which does
it. No broker builds it yet.

Spec: pop.md, sections 13 to 16.
"""
