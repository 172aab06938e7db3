"""Decides by a consumer's SQL92 expression which messages of a queue it gets.

Spec: remoting.md, section 6.2; store.md, section 8.3.
"""

from zope.interface import implementer

from rmq_ha.base.filter.bloom import is_hit
from rmq_ha.base.filter.selector import Selector
from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.properties import RETRY_TOPIC
from rmq_ha.base.store_format.record_properties import record_properties
from rmq_ha.server.broker.tables.consumer_filters import ConsumerFilterData, ConsumerFilterManager


@implementer(IMessageFilter)
class SelectorFilter:
    """
    Passes messages whose properties make the expression true.

    :param data: the group's filter with its bits in bit maps; None for an expression that came with
        a request.
    """

    def __init__(self, selector: Selector, data: ConsumerFilterData | None = None) -> None:
        self._selector = selector
        self._data = data

    def matches_unit(self, tags_code: int) -> bool:
        """Return True: the tag code does not decide."""
        return True

    def matches_extension(
        self, tags_code: int, store_timestamp: int, bit_map: bytes | None
    ) -> bool:
        """Decide by the bit map, if the message came after the filter was registered."""
        data = self._data
        if data is None or data.bloom is None or store_timestamp <= data.born_ms:
            return True
        if bit_map is None or len(bit_map) * 8 != data.bloom.bit_num:
            return True
        return is_hit(bit_map, data.bloom)

    def matches_record(self, record: bytes) -> bool:
        """Decide by the stored properties."""
        return self._selector.matches(record_properties(record))

    def matches_properties(self, properties: dict[str, str]) -> bool:
        return self._selector.matches(properties)


@implementer(IMessageFilter)
class RetryFilter:
    """
    Decides for a retry topic with `filterSupportRetry`.

    Each message is judged by the group's expression for the topic from which the message came. A
    message of a topic without an expression passes.

    :param by_unit: the filter of the subscription to the retry topic itself, which judges a message
        by its unit in the queue; None passes all.
    :param group: the group of the retry topic.
    """

    def __init__(
        self, by_unit: IMessageFilter | None, filters: ConsumerFilterManager, group: str
    ) -> None:
        self._by_unit = by_unit
        self._filters = filters
        self._group = group

    def matches_unit(self, tags_code: int) -> bool:
        return self._by_unit is None or bool(self._by_unit.matches_unit(tags_code))

    def matches_extension(
        self, tags_code: int, store_timestamp: int, bit_map: bytes | None
    ) -> bool:
        return self.matches_unit(tags_code)

    def matches_record(self, record: bytes) -> bool:
        """Decide by the stored properties."""
        return self.matches_properties(record_properties(record))

    def matches_properties(self, properties: dict[str, str]) -> bool:
        """Decide by these properties, which include those of the original message."""
        data = self._filters.get(properties.get(RETRY_TOPIC, ""), self._group)
        return data is None or data.selector is None or data.selector.matches(properties)
