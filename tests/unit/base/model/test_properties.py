"""What is sought of properties is what all of them would say."""

from hypothesis import example, given
from hypothesis import strategies as st

from rmq_ha.base.model.properties import KEYS, TAGS, UNIQ_KEY, decode_properties, sought_properties

PIECES = st.sampled_from(
    [KEYS, TAGS, UNIQ_KEY, "X", "\x01", "\x02", "\x01\x01", "a b", "\n", "é", KEYS + "\x01k"]
)


@given(st.lists(PIECES, max_size=12).map("".join))
@example(f"{KEYS}\x01a\x02{KEYS}\x01b\x02{KEYS}\x01\x02{TAGS}\x01x\x01y\x02X{UNIQ_KEY}\x01u")
def test_sought_properties_are_those_of_all(text: str) -> None:
    every = decode_properties(text)
    wanted = tuple(every.get(name, "") for name in (KEYS, UNIQ_KEY, TAGS))
    assert sought_properties(text) == wanted
