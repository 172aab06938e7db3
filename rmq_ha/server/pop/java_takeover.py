"""The entries by which the POP journal takes over what a Java broker left out.

Spec: pop.md, section 13.6.
"""

from collections.abc import Iterator

from rmq_ha.server.pop.entries import Entry
from rmq_ha.server.pop.java_leases import image_of_java
from rmq_ha.server.pop.java_records import JavaQueue
from rmq_ha.server.pop.java_store import JavaSearch
from rmq_ha.server.pop.state import PopState
from rmq_ha.server.pop.terms import PopTerms


def java_entries(
    search: JavaSearch, state: PopState, terms: PopTerms, now_ms: int
) -> Iterator[Entry]:
    """
    Yield an image of each queue that a Java broker popped, and at last the mark of the search.

    Without the last entry a crash came between, and the next start makes all of them again.

    :param search: it is over.
    :param state: the caller applies each entry to it before it asks for the next.
    :raises JavaPopsRefusal: too many messages are out.
    """
    if search.has_found:
        known = (JavaQueue(*state.names[name], queue_id) for name, queue_id in state.queues)
        for queue in sorted({*known, *search.pops.queues}):
            held = search.pops.held(queue)
            offset = terms.offset(*queue)
            name = state.numbers.get(queue[:2], state.next_name)
            before = state.queues.get((name, queue.queue_id))
            if held.spans or (before is not None and offset > before.committed):
                yield image_of_java(name, queue, held, offset, before, state.least_pop_ms, now_ms)
    numbers = state.numbers_entry()
    marked = numbers._replace(java_end=search.mark.end, java_born_ms=search.mark.born_ms)
    if marked != numbers:
        yield marked
