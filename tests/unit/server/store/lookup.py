"""Looking up keys in an index, for tests."""

from rmq_ha.server.store.index.index import IndexService


def query(
    index: IndexService, topic: str, key: str, most: int, begin: int, end: int
) -> tuple[list[int], int, int]:
    """What is found, and store time and physical offset of the record that was indexed last."""
    found: list[int] = []
    for _ in index.find(topic, key, most, begin, end, found):
        pass
    return found, index.reached_timestamp, index.reached
