"""Changes to an ACL file's text: each edit changes what an admin command asks for, and nothing
else.

Spec: remoting.md, sections 2.2 (codes 50, 51, 53) and 10.3.
"""

from collections.abc import Callable

from rmq_ha.base.acl.addresses import AddressPatterns
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.server.acl.accounts import MIN_KEY_LENGTH, AccountChange
from rmq_ha.server.acl.document import (
    Document,
    Mapping,
    Node,
    mapping,
    put,
    render,
    scalar,
    sequence,
)
from rmq_ha.server.acl.permissions import WORDS, is_word, split_entry
from rmq_ha.server.acl.reading import ACCOUNTS, VERSION, WHITE_ADDRESSES

Edit = Callable[[Document, Mapping], None]


def checked_change(change: AccountChange) -> tuple[str, str]:
    """
    Check a change, and return its access key and secret.

    :raises ValueError: the change cannot be made; the text says why, but not the secret.
    """
    if not (
        change.access_key
        and change.secret_key
        and min(len(change.access_key), len(change.secret_key)) >= MIN_KEY_LENGTH
    ):
        raise ValueError(
            f"accessKey and secretKey must both be given and have at least {MIN_KEY_LENGTH} "
            f"characters; accessKey is {change.access_key!r}"
        )
    AddressPatterns().add(change.white_remote_address)
    for name, word in (
        ("defaultTopicPerm", change.default_topic_perm),
        ("defaultGroupPerm", change.default_group_perm),
    ):
        if word and not is_word(word):
            raise ValueError(f"{name}={word!r} must be {WORDS}")
    for name, entries in (("topicPerms", change.topic_perms), ("groupPerms", change.group_perms)):
        for entry in entries or ():
            _, word = split_entry(entry)
            if not is_word(word):
                raise ValueError(f"{name}: {entry!r}: the permission must be {WORDS}")
    return change.access_key, change.secret_key


def set_account(change: AccountChange) -> Edit:
    """
    Make an edit that adds an account, or changes the values that the change gives.

    :param change: a change that `checked_change` has accepted.
    """
    values: dict[str, Node | None] = {
        "accessKey": _optional(change.access_key),
        "secretKey": _optional(change.secret_key),
        "whiteRemoteAddress": (
            None if change.white_remote_address is None else scalar(change.white_remote_address)
        ),
        "admin": scalar(change.admin),
        "defaultTopicPerm": _optional(change.default_topic_perm),
        "defaultGroupPerm": _optional(change.default_group_perm),
        "topicPerms": _entries(change.topic_perms),
        "groupPerms": _entries(change.group_perms),
    }

    def edit(document: Document, root: Mapping) -> None:
        accounts = document.items(_member(document, root, ACCOUNTS), ACCOUNTS)
        account = _find(document, accounts, change.access_key)
        if account is None:
            account = mapping()
            accounts.append(account)
        for name, value in values.items():
            if value is not None:
                put(account, name, value)
        put(root, ACCOUNTS, sequence(accounts))

    return edit


def delete_account(access_key: str) -> Edit:
    def edit(document: Document, root: Mapping) -> None:
        accounts = document.items(_member(document, root, ACCOUNTS), ACCOUNTS)
        account = _find(document, accounts, access_key)
        put(root, ACCOUNTS, sequence([item for item in accounts if item is not account]))

    return edit


def set_white_addresses(addresses: list[str]) -> Edit:
    """
    Make an edit that replaces the file's global white list.

    :raises ValueError: an address is no pattern.
    """
    patterns = AddressPatterns()
    for address in addresses:
        patterns.add(address)

    def edit(document: Document, root: Mapping) -> None:
        put(root, WHITE_ADDRESSES, sequence([scalar(address) for address in addresses]))

    return edit


def edited(path: str, data: bytes, edit: Edit, version: DataVersion) -> bytes:
    """
    Return a file's new content, with a new version in it.

    :raises ConfigurationError: the old content cannot be read.
    """
    document = Document(path, data)
    root = mapping() if document.root is None else document.root
    edit(document, root)
    entry = mapping()
    put(entry, "counter", scalar(version.counter))
    put(entry, "timestamp", scalar(version.timestamp))
    put(root, VERSION, sequence([entry]))
    return render(root)


def _member(document: Document, node: Mapping, name: str) -> Node | None:
    return document.members(node).get(name)


def _find(document: Document, accounts: list[Node], access_key: str | None) -> Mapping | None:
    for account in accounts:
        node = document.mapping(account, ACCOUNTS)
        if document.text(_member(document, node, "accessKey"), "accessKey") == access_key:
            return node
    return None


def _optional(text: str | None) -> Node | None:
    return scalar(text) if text else None


def _entries(entries: tuple[str, ...] | None) -> Node | None:
    return None if entries is None else sequence([scalar(entry) for entry in entries])
