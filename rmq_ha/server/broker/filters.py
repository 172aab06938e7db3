"""
Which messages of a queue a consumer gets, decided by its SQL92 expression.

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
    Lets messages pass of whose properties the expression is true.

    :param data: the group's, with the bits that it has in bit maps; None for an expression that
        came with a request.
    """

    def __init__(self, selector: Selector, data: ConsumerFilterData | None = None) -> None:
        self._selector = selector
        self._data = data

    def matches_unit(self, tags_code: int) -> bool:
        """Tags say nothing here."""
        return True

    def matches_extension(
        self, tags_code: int, store_timestamp: int, bit_map: bytes | None
    ) -> bool:
        """By the bit map of a message that came after the filter was registered."""
        data = self._data
        if data is None or data.bloom is None or store_timestamp <= data.born_ms:
            return True
        if bit_map is None or len(bit_map) * 8 != data.bloom.bit_num:
            return True
        return is_hit(bit_map, data.bloom)

    def matches_record(self, record: bytes) -> bool:
        """By the stored properties."""
        return self._selector.matches(record_properties(record))

    def matches_properties(self, properties: dict[str, str]) -> bool:
        return self._selector.matches(properties)


@implementer(IMessageFilter)
class RetryFilter:
    """
    For a retry topic with `filterSupportRetry`: by what the group wants of the topic that each
    message came from. What came from elsewhere passes.

    :param by_unit: what the subscription to the retry topic itself says of a unit; None: all.
    :param group: whose retry topic it is.
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
        """By the stored properties."""
        return self.matches_properties(record_properties(record))

    def matches_properties(self, properties: dict[str, str]) -> bool:
        """By these, which have those of the message as it was sent first."""
        data = self._filters.get(properties.get(RETRY_TOPIC, ""), self._group)
        return data is None or data.selector is None or data.selector.matches(properties)
