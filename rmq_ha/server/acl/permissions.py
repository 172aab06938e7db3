"""The permission words of an account, and the permissions that they grant.

Spec: remoting.md, sections 10.2 and 10.3.
"""

from rmq_ha.base.model.topics import RETRY_PREFIX

DENY = 1
PUB = 4
SUB = 8
ADMIN = 16
"""The permission that only an admin has; no word of a file grants it."""

_WORDS = {"DENY": DENY, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}
WORDS = "DENY, PUB, SUB or PUB|SUB"


def is_word(text: str) -> bool:
    """Whether a text is one of the permission words."""
    return text.strip() in _WORDS


def permission(text: str | None) -> int:
    """Return the permission that a word of a file grants; any other text grants DENY."""
    return DENY if text is None else _WORDS.get(text.strip(), DENY)


def allows(owned: int, needed: int) -> bool:
    """Whether `owned` has a needed permission, or one of several; DENY in `owned` beats all."""
    return not owned & DENY and bool(owned & needed)


def group_resource(group: str) -> str:
    """Return the name under which a group's permission is kept: that of its retry topic."""
    return group if group.startswith(RETRY_PREFIX) else RETRY_PREFIX + group


def resource_text(resource: str) -> str:
    if resource.startswith(RETRY_PREFIX):
        return f"group:{resource[len(RETRY_PREFIX) :]}"
    return f"topic:{resource}"


def split_entry(text: str) -> tuple[str, str]:
    """
    Split `name=WORD` in two.

    :raises ValueError: the text is not in that form; the message says what is wrong.
    """
    name, _, word = text.partition("=")
    if text.count("=") != 1 or not name.strip():
        raise ValueError(f"{text!r} must be name=permission, as in topicA=SUB")
    return name.strip(), word.strip()
