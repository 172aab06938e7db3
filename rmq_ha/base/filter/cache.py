"""Keeps compiled selectors by their text, so that a pull that carries its expression need not
compile it.
"""

from collections import OrderedDict

from rmq_ha.base.errors import InvalidSelector
from rmq_ha.base.filter.selector import Selector

MAX_CHARACTERS = 1 << 18
_OVERHEAD = 64


class SelectorCache:
    """
    Keeps the selectors that were used last, and remembers which texts do not compile.

    :param capacity: most characters of all kept expressions together, where each expression counts
        64 characters more than it has. A compiled expression takes some tens of bytes for each
        character.
    """

    def __init__(self, capacity: int = MAX_CHARACTERS) -> None:
        self._capacity = capacity
        self._size = 0
        self._known: OrderedDict[str, Selector | InvalidSelector] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, text: str) -> Selector:
        """
        Return the selector of a text.

        :raises InvalidSelector: the text does not compile.
        """
        compiled = self._known.get(text)
        if compiled is None:
            compiled = self._add(text)
        else:
            self._known.move_to_end(text)
        if isinstance(compiled, InvalidSelector):
            raise InvalidSelector(*compiled.args) from None
        return compiled

    def _add(self, text: str) -> Selector | InvalidSelector:
        made: Selector | InvalidSelector
        try:
            made = Selector(text)
        except InvalidSelector as error:
            made = InvalidSelector(str(error))
        self._known[text] = made
        self._size += len(text) + _OVERHEAD
        while self._size > self._capacity:
            oldest, _ = self._known.popitem(last=False)
            self._size -= len(oldest) + _OVERHEAD
        return made
