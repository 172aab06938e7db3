"""An ACL file's text as a tree of YAML nodes, of which each knows its line.

Errors name file, line and key, but never a secret.
"""

import re
from math import inf

import yaml

from rmq_ha.base.errors import ConfigurationError

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_KINDS = {_TAG + kind for kind in ("int", "float", "bool", "timestamp", "merge", "value")}
_MAX_DEPTH = 20
_MAX_BYTES = 16 << 20
_BOOLEANS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}
_DECIMAL = re.compile("0|[1-9][0-9]*")
_NUMBER = re.compile("0|[1-9][0-9]{0,18}")
_QUOTED = re.compile(r"\s*(['\"]).{2,}\1")

Mapping = yaml.MappingNode
Node = yaml.Node


class Document:
    """
    One file, parsed.

    :ivar root: its top-level mapping; None for an empty file.
    :raises ConfigurationError: the file is no YAML, or its top level is no mapping.
    """

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        root = self._compose(data)
        if root is None or _is_null(root):
            self.root: Mapping | None = None
        elif isinstance(root, Mapping):
            self.root = root
        else:
            raise self.fault(root, "", "the file must consist of `name: value` lines")

    def fault(self, node: Node | None, name: str, reason: str) -> ConfigurationError:
        """Return an exception that says what is wrong, and where."""
        place = f"{self.path}:{1 if node is None else _line(node)}: "
        return ConfigurationError(f"{place}{name}: {reason}" if name else place + reason)

    def members(self, node: Mapping) -> dict[str, Node]:
        """Return the members of a mapping; each name may occur once."""
        nodes: dict[str, Node] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self.fault(key, "", "a name must be a word")
            if key.value in nodes:
                raise self.fault(
                    key, key.value, f"is there twice, also at line {_line(nodes[key.value])}"
                )
            nodes[key.value] = value
        return nodes

    def mapping(self, node: Node, name: str) -> Mapping:
        """Return a node that must be a mapping."""
        if not isinstance(node, Mapping):
            raise self.fault(node, name, "must be `name: value` lines")
        return node

    def items(self, node: Node | None, name: str) -> list[Node]:
        """Return the items of a list; none when it is absent."""
        if node is None or _is_null(node):
            return []
        if not isinstance(node, yaml.SequenceNode):
            raise self.fault(node, name, "must be a list: lines that start with `- `, or [a, b]")
        return list(node.value)

    def text(self, node: Node | None, name: str) -> str | None:
        """Return a string; None when it is absent."""
        if node is None or _is_null(node):
            return None
        if not isinstance(node, yaml.ScalarNode):
            raise self.fault(node, name, "must be one value")
        if node.tag == _TAG + "str" or (
            node.tag == _TAG + "int" and _DECIMAL.fullmatch(node.value)
        ):
            return str(node.value)
        # Another tag may be a secret that begins with `!`.
        kind = node.tag.removeprefix(_TAG) if node.tag in _KINDS else "something else"
        raise self.fault(
            node, name, f"put it in quotes: YAML does not read it as text but as {kind}"
        )

    def texts(self, node: Node | None, name: str) -> tuple[str, ...] | None:
        """Return a list of strings; None when it is absent."""
        if node is None or _is_null(node):
            return None
        return tuple(self.text(item, name) or "" for item in self.items(node, name))

    def boolean(self, node: Node | None, name: str) -> bool:
        """Return a truth value; false when it is absent."""
        if node is None or _is_null(node):
            return False
        value = _BOOLEANS.get(node.value.lower()) if isinstance(node, yaml.ScalarNode) else None
        if value is None:
            raise self.fault(node, name, "must be true or false")
        return value

    def number(self, node: Node | None, name: str) -> int:
        """Return a number from 0 to 2^63 - 1; 0 when it is absent."""
        text = self.text(node, name)
        if text is None:
            return 0
        if not _NUMBER.fullmatch(text) or int(text) >= 1 << 63:
            raise self.fault(node, name, "must be a number")
        return int(text)

    def _compose(self, data: bytes) -> Node | None:
        if len(data) > _MAX_BYTES:
            raise ConfigurationError(f"{self.path}: is larger than {_MAX_BYTES} bytes")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise ConfigurationError(f"{self.path}:{line}: is not UTF-8") from None
        try:
            self._check_depth(text)
            return yaml.compose(text, _LOADER)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = 1 if mark is None else mark.line + 1
            problem = _QUOTED.sub("", error.problem or error.context or "cannot be read")
            raise ConfigurationError(f"{self.path}:{line}: is no YAML: {problem}") from None
        except yaml.YAMLError:
            # A reader's error shows the text around it, which may be a secret.
            raise ConfigurationError(
                f"{self.path}: is no YAML: a character is not allowed"
            ) from None

    def _check_depth(self, text: str) -> None:
        """
        Refuse deep nesting: PyYAML's composer recurses in C, so deep nesting would end the process.
        """
        depth = 0
        for event in yaml.parse(text, _LOADER):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > _MAX_DEPTH:
                    raise ConfigurationError(
                        f"{self.path}:{_line(event)}: nests deeper than {_MAX_DEPTH}"
                    )
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1


def render(root: Mapping) -> bytes:
    """Return the text of a tree. Comments are lost, as when RocketMQ writes."""
    text: str = yaml.serialize(root, Dumper=yaml.SafeDumper, allow_unicode=True, width=inf)
    return text.encode("utf-8")


def scalar(value: str | int | bool) -> Node:
    """Make a new value; a string is quoted where it must be."""
    if isinstance(value, bool):
        return yaml.ScalarNode(_TAG + "bool", "true" if value else "false")
    if isinstance(value, int):
        return yaml.ScalarNode(_TAG + "int", str(value))
    return yaml.ScalarNode(_TAG + "str", value)


def sequence(items: list[Node]) -> Node:
    """Make a new list with one line for each item."""
    return yaml.SequenceNode(_TAG + "seq", items, flow_style=False)


def mapping() -> Mapping:
    return Mapping(_TAG + "map", [], flow_style=False)


def put(node: Mapping, name: str, value: Node) -> None:
    """Set a member of a mapping to a value, or add it."""
    for at, (key, _) in enumerate(node.value):
        if key.value == name:
            node.value[at] = (key, value)
            return
    node.value.append((scalar(name), value))


def _is_null(node: Node) -> bool:
    return bool(node.tag == _TAG + "null")


def _line(item: Node | yaml.Event) -> int:
    assert item.start_mark is not None  # every node was read from text
    return int(item.start_mark.line) + 1
