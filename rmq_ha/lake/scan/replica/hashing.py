"""
Computes hashes of many texts at once: tags' codes in queue entries, and keys' hashes in index
items.

Java's `String.hashCode` of two joined texts is that of the first, times 31 to the power of the
second's length, plus that of the second; so a topic is hashed once for all its keys.

Spec: store.md, sections 3.1 and 4.1.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from rmq_ha.base.model.java_hash import java_hash, tags_code
from rmq_ha.lake.scan.log.shape import Ints

_LONGEST = 256
"""Bytes; longer texts are hashed one by one."""
_MASK = 0xFFFFFFFF


def tag_codes(tags: Any) -> Ints:
    """Return the tag code of each of these Arrow texts; 0 for a row without a tag."""
    encoded = tags.dictionary_encode()
    codes = [tags_code(tag.as_py()) for tag in encoded.dictionary]
    table = np.array([*codes, 0], np.int64)
    rows = encoded.indices.fill_null(len(codes)).to_numpy(zero_copy_only=False)
    by_row: Ints = table[rows]
    return by_row


def key_hashes(topics: Any, keys: Any) -> Ints:
    """
    Return the hash that an index item has for `topic#key`, for each row.

    :param topics: an Arrow array of texts without nulls, as long as `keys`.
    """
    encoded = topics.dictionary_encode()
    prefixes = np.array(
        [java_hash(f"{topic.as_py()}#") & _MASK for topic in encoded.dictionary], np.uint64
    )
    if not len(keys):
        return np.zeros(0, np.int64)
    hashes, powers, odd = _hashes(keys)
    whole = (prefixes[encoded.indices.to_numpy()] * powers + hashes) & np.uint64(_MASK)
    signed = whole.astype(np.uint32).view(np.int32).astype(np.int64)
    for row in np.flatnonzero(odd).tolist():
        signed[row] = java_hash(f"{topics[row].as_py()}#{keys[row].as_py()}")
    positive: Ints = np.abs(signed)
    positive[positive > 0x7FFFFFFF] = 0
    return positive


def _hashes(texts: Any) -> tuple[Any, Any, Any]:
    """
    Return the hash of each text, and 31 to the power of its length, both mod 2^32; and flags of the
    texts that were left out, because they are long or not ASCII.
    """
    starts, ends, data = _bytes_of(texts)
    lengths = ends - starts
    odd = lengths > _LONGEST
    if len(data) and data.max() > 127:
        high = np.concatenate(([0], np.cumsum(data > 127)))
        odd |= high[ends] > high[starts]
    lengths = np.where(odd, 0, lengths)
    order = np.argsort(lengths, kind="stable")[::-1]
    longest_first, begins = lengths[order], starts[order]
    hashes = np.zeros(len(order), np.uint64)
    # One step for each position in the texts: the first `rows` texts are long enough to have it.
    for column in range(int(longest_first[0])):
        rows = int(np.searchsorted(-longest_first, -column))
        hashes[:rows] = hashes[:rows] * np.uint64(31) + data[begins[:rows] + column]
        hashes[:rows] &= np.uint64(_MASK)
    back = np.empty_like(hashes)
    back[order] = hashes
    return back, _POWERS[lengths], odd


def _bytes_of(texts: Any) -> tuple[Ints, Ints, Any]:
    """Return where each text starts and ends in the bytes of its Arrow array, and these bytes."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    held = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    held = held[: int(ends[-1])]
    return ends[:-1].astype(np.int64), ends[1:].astype(np.int64), held


_POWERS = np.array([pow(31, length, 1 << 32) for length in range(_LONGEST + 1)], np.uint64)


def split_keys(keys: Any) -> tuple[Ints, Any]:
    """
    Return the non-empty words of all rows of KEYS: the row of each, and the words as texts.

    :param keys: an Arrow array of texts; null: the row has no keys.
    """
    import pyarrow.compute as pc

    lists = pc.split_pattern(keys, " ")
    words, rows = pc.list_flatten(lists), pc.list_parent_indices(lists)
    filled = pc.not_equal(words, "")
    return rows.filter(filled).to_numpy().astype(np.int64), _plain(words.filter(filled))


def _plain(texts: Any) -> Any:
    """Return an Arrow array in one piece."""
    return texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
