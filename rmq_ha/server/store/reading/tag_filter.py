"""Decides by the tag codes in a consume queue which messages a consumer gets.

Spec: store.md, section 8.3.
"""

from zope.interface import implementer

from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.subscription import SUB_ALL, TAG_TYPES, SubscriptionData
from rmq_ha.base.store_format.consumequeue import is_extension_address


@implementer(IMessageFilter)
class TagFilter:
    """
    Passes messages whose tag has the same hash as a subscribed tag.

    Different tags may have the same hash, so clients compare the strings. A subscription that is
    not by tags (SQL92, class filter) passes every message here.
    """

    def __init__(self, subscription: SubscriptionData) -> None:
        by_tags = subscription.expression_type in TAG_TYPES
        self.matches_all = (
            not by_tags or subscription.class_filter_mode or subscription.sub_string == SUB_ALL
        )
        self._codes = frozenset(code & 0xFFFFFFFF for code in subscription.code_set)

    def matches_unit(self, tags_code: int) -> bool:
        """
        Return whether a tag code may match the subscription; only its lower 32 bits are compared.

        The code may be the address of an extension unit, which holds the real tag code. Such an
        address always matches.
        """
        return (
            self.matches_all
            or tags_code & 0xFFFFFFFF in self._codes
            or is_extension_address(tags_code)
        )

    def matches_extension(
        self, tags_code: int, store_timestamp: int, bit_map: bytes | None
    ) -> bool:
        """
        Do what `matches_unit` does, for the tag code in an extension unit. The other fields of the
        extension unit do not count here.
        """
        return self.matches_unit(tags_code)

    def matches_record(self, record: bytes) -> bool:
        """Return True: `matches_unit` has decided already."""
        return True

    def matches_properties(self, properties: dict[str, str]) -> bool:
        """Return True: `matches_unit` has decided already."""
        return True
