"""Filters on the consume queue's numbers. Spec: store.md, section 8.3."""

import pytest
from zope.interface.verify import verifyObject

from rmq_ha.base.interfaces import IMessageFilter
from rmq_ha.base.model.java_hash import java_hash
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.server.store.reading.tag_filter import TagFilter


def test_filters_are_message_filters() -> None:
    """By the interface that plugins implement too."""
    assert verifyObject(IMessageFilter, TagFilter(SubscriptionData("T", "*")))


@pytest.mark.parametrize("expression", ["*", "", None])
def test_no_expression_matches_everything(expression: str | None) -> None:
    """Also what has no tag."""
    found = TagFilter(SubscriptionData.for_tags("T", expression))
    assert found.matches_unit(0)
    assert found.matches_unit(java_hash("TagA"))


def test_tags_match_by_hash() -> None:
    """Truncated to 32 bits, negative ones too; other tags and no tag do not."""
    found = TagFilter(SubscriptionData.for_tags("T", "TagA || TagDelay"))
    assert found.matches_unit(java_hash("TagA"))
    assert found.matches_unit(java_hash("TagDelay"))
    assert found.matches_unit(java_hash("TagA") + (1 << 40))
    assert not found.matches_unit(java_hash("TagB"))
    assert not found.matches_unit(0)
    assert found.matches_record(b"")


def test_extension_addresses_match() -> None:
    """They cannot be resolved; the client decides by the string."""
    assert TagFilter(SubscriptionData.for_tags("T", "TagA")).matches_unit(-9223372036854775780)


def test_other_kinds_of_subscription_match_everything() -> None:
    """SQL92 and class filters."""
    sql = SubscriptionData("T", "a > 1", expression_type="SQL92")
    by_class = SubscriptionData("T", "some.Class", class_filter_mode=True)
    assert TagFilter(sql).matches_unit(5)
    assert TagFilter(by_class).matches_unit(5)
