"""Translates the rights of an account into policies of RocketMQ 5 (ACL 2.0), and back.

An account names one permission for each topic and group, and a default for all others. A policy of
RocketMQ 5 has rules that allow or deny actions. It looks at the rules of the type Default only
where no rule of the type Custom fits topic and action.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from rmq_ha.base.model.topics import RETRY_PREFIX
from rmq_ha.base.wire.auth_bodies import ALLOW, CUSTOM, DEFAULT, DENY, Policy, PolicyEntry
from rmq_ha.server.acl.permissions import group_resource, is_word, split_entry

PUB, SUB, GET, ALL = "Pub", "Sub", "Get", "All"
_BOTH = (PUB, SUB)
_WORDS = {(): "DENY", (PUB,): "PUB", (SUB,): "SUB", _BOTH: "PUB|SUB"}
_ACTIONS = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
_KINDS = {"topic": "Topic", "group": "Group"}
_ANY = "*"
NO_RIGHT = "DENY"


class Rights(NamedTuple):
    """
    The permissions of an account, in the words of `plain_acl.yml`.

    :ivar topics: the permission of each topic that has one of its own.
    :ivar groups: the same for groups.
    """

    default_topic: str = NO_RIGHT
    default_group: str = NO_RIGHT
    topics: Mapping[str, str] = {}
    groups: Mapping[str, str] = {}

    @classmethod
    def from_words(
        cls,
        default_topic: str | None,
        default_group: str | None,
        topics: Iterable[str] | None,
        groups: Iterable[str] | None,
    ) -> "Rights":
        """
        Make the rights of an entry of `accounts`. A word that is none denies, as it does when the
        file is in force.

        :param topics: texts such as `name=PUB`. A group may stand there by its retry topic.
        """
        own: dict[str, str] = {}
        of_groups: dict[str, str] = {}
        for entry in topics or ():
            name, word = split_entry(entry)
            (of_groups if name.startswith(RETRY_PREFIX) else own)[name] = _word(word)
        for entry in groups or ():
            name, word = split_entry(entry)
            of_groups[group_resource(name)] = _word(word)
        plain = {name.removeprefix(RETRY_PREFIX): word for name, word in of_groups.items()}
        return cls(_word(default_topic), _word(default_group), own, plain)


class PolicyRule(NamedTuple):
    """
    What the policies say about one topic or group, or about all others.

    :ivar kind: `Topic` or `Group`.
    :ivar name: `*` stands for all that have no rule.
    :ivar allowed: `Pub`, `Sub`, both or none.
    :ivar denied: the same.
    """

    kind: str
    name: str
    allowed: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()

    @property
    def resource(self) -> str:
        return f"{self.kind}:{self.name}"


class NotCarried(Exception):
    """
    A rule of RocketMQ 5 that the rights of an account cannot say; the text has the next step.

    :ivar denies: whether the rule denies, so that the account could do more without it.
    :ivar part: the part of the rule that an account can have; None: nothing.
    """

    def __init__(self, text: str, *, denies: bool = False, part: PolicyRule | None = None) -> None:
        super().__init__(text)
        self.denies = denies
        self.part = part


# ------------------------------------------------------------ to RocketMQ 5


def rules_of(rights: Rights) -> list[PolicyRule]:
    """
    Return the rules that mean the same as an account's rights.

    An entry of `plain_acl.yml` replaces the default. A rule of RocketMQ 5 adds to it, so what only
    the default allows is denied.
    """
    rules = []
    for kind, default, entries in (
        ("Topic", rights.default_topic, rights.topics),
        ("Group", rights.default_group, rights.groups),
    ):
        common = _actions_of(default)
        for name, word in entries.items():
            own = _actions_of(word)
            rules.append(PolicyRule(kind, name, own, (common - own) if own else frozenset(_BOTH)))
        if common:
            rules.append(PolicyRule(kind, _ANY, common))
    return rules


def policies_of(rules: Iterable[PolicyRule], *, is_for_java: bool = False) -> list[Policy]:
    """
    Write rules as policies.

    :param is_for_java: whether a broker of RocketMQ 5 will judge by them. There `Get` is what a
        consumer needs to ask for offsets, and belongs to SUB here.
    """
    entries: dict[str, list[PolicyEntry]] = {CUSTOM: [], DEFAULT: []}
    for rule in rules:
        place = entries[DEFAULT if rule.name == _ANY else CUSTOM]
        for decision, actions in ((ALLOW, rule.allowed), (DENY, rule.denied)):
            if not actions:
                continue
            named = [action for action in _BOTH if action in actions]
            if is_for_java and SUB in actions:
                named.append(GET)
            place.append(PolicyEntry(named, decision, rule.resource))
    return [Policy(items, kind) for kind, items in entries.items() if items]


# ------------------------------------------------------------ from RocketMQ 5


def rules_in(policies: Iterable[Policy]) -> Iterator[PolicyRule | NotCarried]:
    """Read policies: one rule for each entry, or the reason why an account cannot have it."""
    for policy in policies:
        for entry in policy.entries or ():
            try:
                yield _rule(entry)
            except NotCarried as reason:
                yield reason


def merged(before: Iterable[PolicyRule], after: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Replace the rules of each topic and group that `after` names, and add the others."""
    rules = {rule.resource: rule for rule in before}
    news: dict[str, PolicyRule] = {}
    for rule in after:
        known = news.get(rule.resource, rule)
        news[rule.resource] = known._replace(
            allowed=known.allowed | rule.allowed, denied=known.denied | rule.denied
        )
    return list((rules | news).values())


def rights_of(rules: Iterable[PolicyRule]) -> Rights:
    """
    Return the rights that mean the same as rules.

    A broker of RocketMQ 5 asks the rules of one topic first, and `*` for an action that they
    neither allow nor deny. Where they do both, 5.3.3 allows and 5.5 denies; here it is denied.
    """
    words: dict[str, dict[str, str]] = {"Topic": {}, "Group": {}}
    every = list(rules)
    common = {rule.kind: rule.allowed for rule in every if rule.name == _ANY}
    for rule in every:
        inherited = frozenset() if rule.name == _ANY else common.get(rule.kind, frozenset())
        allowed = (rule.allowed | inherited) - rule.denied
        words[rule.kind][rule.name] = _WORDS[tuple(item for item in _BOTH if item in allowed)]
    topic, group = (words[kind].pop(_ANY, NO_RIGHT) for kind in ("Topic", "Group"))
    return Rights(topic, group, words["Topic"], words["Group"])


def check_kept(rules: Iterable[PolicyRule], rights: Rights) -> None:
    """
    Refuse rules that would mean something else after the next change of one of them.

    :param rights: the rights that were made of these rules.
    :raises NotCarried: the rules lean on `*` for an action of a topic that has rules of its own.
    """
    meant = {rule.resource: rule for rule in rules_of(rights)}
    for rule in rules:
        kept = meant.get(rule.resource, rule)
        if rule.allowed & rule.denied:
            raise NotCarried(
                f"{rule.resource} is allowed and denied the same action: give one of the two"
            )
        if rule.name != _ANY and not rule.allowed and len(rule.denied) < len(_BOTH):
            raise NotCarried(
                f"{rule.resource} denies {_text(rule.denied)} alone: here the permission of a name "
                "says all that is allowed. Deny Pub,Sub, or allow the other one"
            )
        if rule.name != _ANY and kept.allowed != rule.allowed:
            lacking = _text(kept.allowed - rule.allowed)
            raise NotCarried(
                f"{rule.resource} allows {_text(rule.allowed) or 'nothing'}, and {rule.kind}:* "
                f"would add {lacking} in RocketMQ 5. Here the permission of one name replaces that "
                f"of all: give {rule.resource} also {lacking} first, or deny it in the same request"
            )


def _rule(entry: PolicyEntry) -> PolicyRule:
    decision = (entry.decision or "").capitalize()
    denies = decision != ALLOW
    kind, name = _kind_and_name(entry.resource or "", denies=denies)
    resource = f"{kind}:{name}"
    if entry.source_ips:
        raise NotCarried(
            f"{resource} is for the addresses {', '.join(entry.source_ips)} only: this broker has "
            "no permission for an address. Leave the addresses out (-i), and let a firewall keep "
            "others away",
            denies=denies,
        )
    if decision not in (ALLOW, DENY):
        raise NotCarried(
            f"{resource}: the decision is null or illegal: give Allow or Deny", denies=True
        )
    actions = {item.capitalize() for item in entry.actions or ()} & {*_ACTIONS}
    if not actions:
        raise NotCarried(
            f"{resource}: the actions is empty: give Pub, Sub or Pub,Sub", denies=denies
        )
    common = frozenset(_BOTH if ALL in actions else actions & {*_BOTH})
    if denies:
        if not common:
            raise NotCarried(
                f"{resource}: only accounts of the type Super may {_text(actions)} here, so there "
                "is nothing to deny"
            )
        return PolicyRule(kind, name, denied=common)
    part = PolicyRule(kind, name, common) if common else None
    if actions - {PUB, SUB, GET}:
        raise NotCarried(
            f"{resource} allows {_text(actions - {PUB, SUB, GET})}: here an account configures all "
            "topics and groups or none. Give Pub, Sub or Pub,Sub, or make the user Super "
            "(updateUser -t Super)",
            part=part,
        )
    if GET in actions and SUB not in actions:
        raise NotCarried(
            f"{resource} allows Get without Sub: here who may Sub may ask for offsets, too. Give "
            "Sub, or leave Get out",
            part=part,
        )
    return PolicyRule(kind, name, common)


def _kind_and_name(resource: str, *, denies: bool) -> tuple[str, str]:
    kind, _, name = resource.partition(":")
    known = _KINDS.get(kind.lower())
    if known is None or not name:
        raise NotCarried(
            f"the resource {resource[:100]!r}: only Topic:NAME, Group:NAME, Topic:* and Group:* "
            "have permissions here. Give these, or make the user Super (updateUser -t Super)",
            denies=denies,
        )
    if name != _ANY and name.endswith(_ANY):
        raise NotCarried(
            f"{known}:{name} is for all names that begin so: here a permission is for one name or "
            f"for all. Name each of them, or give {known}:*",
            denies=denies,
        )
    if any(char in name for char in "=,") or name.strip() != name:
        raise NotCarried(f"{known}:{name[:100]}: no topic or group can have this name")
    return known, name


def _actions_of(word: str) -> frozenset[str]:
    return frozenset(action for action in _BOTH if action.upper() in word.split("|"))


def _word(text: str | None) -> str:
    if text is None or not is_word(text):
        return NO_RIGHT
    return _WORDS[tuple(action for action in _BOTH if action in _actions_of(text.strip()))]


def _text(actions: Iterable[str]) -> str:
    given = set(actions)
    return ", ".join(action for action in _ACTIONS if action in given)
