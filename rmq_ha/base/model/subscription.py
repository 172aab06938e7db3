"""SubscriptionData: which messages of a topic a consumer group wants.

Spec: remoting.md, sections 6.2 and 7.1, appendix B1; store.md, section 8.3.
"""

import msgspec
from msgspec import field

from rmq_ha.base.model.java_hash import tags_code
from rmq_ha.base.model.numbers import Int32

SUB_ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"
TAG_TYPES = (None, "", TAG)
"""Types of expressions that select messages by tags."""
_JAVA_BLANKS = "".join(map(chr, range(33)))


class SubscriptionData(msgspec.Struct, rename="camel"):
    """
    A consumer's subscription to one topic.

    :ivar code_set: the hash codes of the tags; the Go client writes them as texts.
    """

    topic: str
    sub_string: str = ""
    tags_set: set[str] = field(default_factory=set)
    code_set: set[Int32] = field(default_factory=set)
    sub_version: int = 0
    expression_type: str | None = TAG
    class_filter_mode: bool = False

    @classmethod
    def for_tags(cls, topic: str, expression: str | None, version: int = 0) -> "SubscriptionData":
        """
        Make a subscription from a tag expression; None, an empty text and `*` stand for all
        messages.
        """
        if not expression or expression == SUB_ALL:
            return cls(topic, SUB_ALL, sub_version=version)
        tags = {tag for tag in (part.strip(_JAVA_BLANKS) for part in expression.split("||")) if tag}
        return cls(topic, expression, tags, {tags_code(tag) for tag in tags}, version)
