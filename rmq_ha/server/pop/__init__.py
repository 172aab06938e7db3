"""POP consumption: which message is out with whom, and until when. The log alone decides.

Request processors call what `face.Pops` declares. Enter at `service.PopService`, which does it.

Spec: pop.md, sections 13 to 16.
"""
