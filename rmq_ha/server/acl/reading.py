"""Reads an ACL file's bytes into values.

Spec: remoting.md, section 10.3.
"""

from rmq_ha.base.acl.addresses import AddressPatterns
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.server.acl.accounts import MIN_KEY_LENGTH, AccountEntry, AclFile
from rmq_ha.server.acl.document import Document, Mapping, Node
from rmq_ha.server.acl.permissions import WORDS, is_word, split_entry

WHITE_ADDRESSES = "globalWhiteRemoteAddresses"
ACCOUNTS = "accounts"
VERSION = "dataVersion"

_KNOWN = frozenset({WHITE_ADDRESSES, ACCOUNTS, VERSION})
_KNOWN_OF_ACCOUNT = frozenset(
    {
        "accessKey",
        "secretKey",
        "whiteRemoteAddress",
        "admin",
        "defaultTopicPerm",
        "defaultGroupPerm",
        "topicPerms",
        "groupPerms",
        "certificateNames",
        "previousSecretKey",
    }
)


def read_file(path: str, data: bytes) -> AclFile:
    """
    Read one file.

    :param path: path of the file, for messages.
    :raises ConfigurationError: the file cannot be used; the message names file, line, key and
        reason.
    """
    return _NodeReader(Document(path, data)).file()


class _NodeReader:
    """Translates one file's nodes to values."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._notices: list[str] = []

    def file(self) -> AclFile:
        document = self._document
        if document.root is None:
            return AclFile(document.path, notices=(f"{document.path} is empty",), is_empty=True)
        members = document.members(document.root)
        for name in members.keys() - _KNOWN:
            self._odd(members[name], f"{name} is not known and has no effect")
        return AclFile(
            document.path,
            self._white_addresses(members.get(WHITE_ADDRESSES)),
            tuple(self._accounts(members.get(ACCOUNTS))),
            self._version(members.get(VERSION)),
            tuple(sorted(self._notices)),
        )

    def _white_addresses(self, node: Node | None) -> tuple[str, ...]:
        document = self._document
        texts = []
        for item in document.items(node, WHITE_ADDRESSES):
            text = document.text(item, WHITE_ADDRESSES) or ""
            self._check_address(item, WHITE_ADDRESSES, text)
            texts.append(text)
        return tuple(texts)

    def _accounts(self, node: Node | None) -> list[AccountEntry]:
        document = self._document
        return [
            self._account(document.mapping(item, ACCOUNTS))
            for item in document.items(node, ACCOUNTS)
        ]

    def _account(self, node: Mapping) -> AccountEntry:
        document = self._document
        members = document.members(node)
        for name in members.keys() - _KNOWN_OF_ACCOUNT:
            self._odd(members[name], f"{name} is not known and has no effect")
        white = document.text(members.get("whiteRemoteAddress"), "whiteRemoteAddress")
        if white is not None:
            self._check_address(members["whiteRemoteAddress"], "whiteRemoteAddress", white)
        return AccountEntry(
            access_key=self._key(node, members, "accessKey"),
            secret_key=self._key(node, members, "secretKey"),
            white_remote_address=white,
            admin=document.boolean(members.get("admin"), "admin"),
            default_topic_perm=self._word(members.get("defaultTopicPerm"), "defaultTopicPerm"),
            default_group_perm=self._word(members.get("defaultGroupPerm"), "defaultGroupPerm"),
            topic_perms=self._entries(members.get("topicPerms"), "topicPerms"),
            group_perms=self._entries(members.get("groupPerms"), "groupPerms"),
            certificate_names=document.texts(members.get("certificateNames"), "certificateNames"),
            previous_secret_key=self._previous_key(node, members),
        )

    def _key(self, node: Mapping, members: dict[str, Node], name: str) -> str:
        text = self._document.text(members.get(name), name)
        if text is None:
            raise self._document.fault(members.get(name, node), name, "is missing in this account")
        if len(text) < MIN_KEY_LENGTH:
            raise self._document.fault(
                members[name], name, f"must have at least {MIN_KEY_LENGTH} characters"
            )
        return text

    def _previous_key(self, node: Mapping, members: dict[str, Node]) -> str | None:
        """
        Read the previous secret, which is valid while a secret is changed. A notice reminds the
        operator to remove it.
        """
        name = "previousSecretKey"
        if self._document.text(members.get(name), name) is None:
            return None
        text = self._key(node, members, name)
        self._odd(
            members[name],
            f"{name} is valid, too: take it away when all clients have the new secretKey",
        )
        return text

    def _word(self, node: Node | None, name: str) -> str | None:
        text = self._document.text(node, name)
        if node is not None and text is not None and not is_word(text):
            self._odd(node, f"{name} {text!r} denies: it is not {WORDS}")
        return text

    def _entries(self, node: Node | None, name: str) -> tuple[str, ...] | None:
        texts = self._document.texts(node, name)
        if texts is None:
            return None
        for item, text in zip(self._document.items(node, name), texts, strict=True):
            try:
                _, word = split_entry(text)
            except ValueError as error:
                raise self._document.fault(item, name, str(error)) from None
            if not is_word(word):
                self._odd(item, f"{name} {text!r} denies: {word!r} is not {WORDS}")
        return texts

    def _version(self, node: Node | None) -> DataVersion | None:
        document = self._document
        items = document.items(node, VERSION)
        if not items:
            return None
        members = document.members(document.mapping(items[0], VERSION))
        return DataVersion(
            document.number(members.get("timestamp"), f"{VERSION}.timestamp"),
            document.number(members.get("counter"), f"{VERSION}.counter"),
        )

    def _check_address(self, node: Node, name: str, text: str) -> None:
        try:
            AddressPatterns().add(text)
        except ValueError as error:
            raise self._document.fault(node, name, str(error)) from None

    def _odd(self, node: Node, text: str) -> None:
        self._notices.append(f"{self._document.path}:{node.start_mark.line + 1}: {text}")
