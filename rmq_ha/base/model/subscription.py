"""SubscriptionData: what a consumer group wants of a topic.

Spec: remoting.md, sections 6.2 and 7.1, appendix B1; store.md, section 8.3.
"""

from dataclasses import dataclass, field
from typing import Any

from rmq_ha.base.model.java_hash import tags_code
from rmq_ha.base.model.numbers import java_ints

SUB_ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"
TAG_TYPES = (None, "", TAG)
"""Types of expression that are decided by tags."""
_JAVA_BLANKS = "".join(map(chr, range(33)))


@dataclass(slots=True)
class SubscriptionData:
    """One topic of a consumer's subscription."""

    topic: str
    sub_string: str = SUB_ALL
    tags_set: set[str] = field(default_factory=set)
    code_set: set[int] = field(default_factory=set)
    sub_version: int = 0
    expression_type: str | None = TAG
    class_filter_mode: bool = False

    @classmethod
    def for_tags(cls, topic: str, expression: str | None, version: int = 0) -> "SubscriptionData":
        """Build from a tag expression; None, empty and `*` mean everything."""
        if not expression or expression == SUB_ALL:
            return cls(topic, sub_version=version)
        tags = {tag for tag in (part.strip(_JAVA_BLANKS) for part in expression.split("||")) if tag}
        return cls(topic, expression, tags, {tags_code(tag) for tag in tags}, version)

    def to_json(self) -> dict[str, Any]:
        """The members have Java's names, in alphabetical order."""
        return {
            "classFilterMode": self.class_filter_mode,
            "codeSet": sorted(self.code_set),
            "expressionType": self.expression_type,
            "subString": self.sub_string,
            "subVersion": self.sub_version,
            "tagsSet": sorted(self.tags_set),
            "topic": self.topic,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "SubscriptionData":
        """
        The Go client writes the codes as strings.

        :raises TypeError: a tag is no string.
        :raises ValueError: a code is not a 32-bit integer.
        """
        return cls(
            topic=value.get("topic", ""),
            sub_string=value.get("subString") or "",
            tags_set=_tags(value.get("tagsSet") or ()),
            code_set=java_ints(value.get("codeSet") or ()),
            sub_version=int(value.get("subVersion", 0)),
            expression_type=value.get("expressionType", TAG),
            class_filter_mode=bool(value.get("classFilterMode", False)),
        )


def _tags(values: Any) -> set[str]:
    others = set(map(type, values)) - {str}  # in one go: a client may name thousands
    if not others:
        return set(values)
    raise TypeError(f"a tag that is {others.pop().__name__}, not a string")
