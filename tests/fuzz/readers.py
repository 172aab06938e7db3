"""
Which functions of ours read bytes or documents that others made.

Found in the source, so that nobody has to remember to say so: a reader is named like one, or uses
what takes bytes apart. Each needs a target that reaches it, or a reason in `ELSEWHERE`.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2] / "rmq_ha"

#: Methods that are handed what came, by their names.
NAMED = ("dataReceived", "receive_data", "receive_all", "from_json", "read_file")
NAMED_FROM = ("decode", "_decode", "parse", "_parse")
#: What takes bytes apart, by the last part of its name.
TAKES_APART = ("unpack_from", "unpack", "iter_unpack", "decompress", "decompressobj", "from_bytes")
#: The same, by the whole of it.
READS = ("yaml.compose", "yaml.parse", "json.loads", "msgspec.json.decode", "msgspec.convert")

#: No other module can have a reader: most need not be parsed.
WORDS = (*NAMED, "decode", "parse", *TAKES_APART, *READS)

#: Packages, and functions, that need no target; and why.
ELSEWHERE = {
    "rmq_ha.lake.spark": "reads copies of stores, in processes of its own: tests/unit/lake/spark",
    "rmq_ha.lake.scan": "reads copies of stores: tests/unit/lake/spark",
    "rmq_ha.ops.offline": "reads copies of stores: tests/unit/lake/spark",
    "rmq_ha.ops.checks": "reads copies of stores: tests/unit/lake/scan",
    "rmq_ha.ops.offsets": "reads what its own commands kept, and stores: tests/unit/ops/offsets",
    "rmq_ha.ops.admin.cluster_import": "reads an operator's own export: test_cluster_import",
    "rmq_ha.ops.admin.auth_document": "reads an operator's own export: test_acl_auth",
    "rmq_ha.ops.app.page.trends": "our own file, with a CRC in each slot: test_page_trends",
    "rmq_ha.server.tiered.segments": "msgspec reads it: tests/unit/server/tiered",
    "rmq_ha.testing": "not part of a server",
    "rmq_ha.ops.app.demo_parts": "asks the brokers that the demo started itself",
    "rmq_ha.ops.app.options:ServerOptions.parseArgs": "the command line of whoever starts a server",
    "rmq_ha.base.persisted_table:PersistedTable.decode": "says what a table's has to do",
    "rmq_ha.base.tls.any_session:AnySession.receive_data": "says what a session has to do",
    "rmq_ha.server.replication.protocol:FeedCore.receive_data": "says what a core has to do",
    "rmq_ha.server.replication.protocol:ReplicaCore.receive_data": "says what a core has to do",
    "rmq_ha.server.broker.transactions.lookup:HalfMessages._decode": "decode_record",
    "rmq_ha.client.consume.pull_api:PullApi._decode": "decode_pulled, and what it leaves is chosen",
    "rmq_ha.client.rebalance.consistent_hash:md5_hash": "reads nothing: a hash",
    "rmq_ha.base.filter.bloom:murmur3": "reads nothing: a hash",
    "rmq_ha.base.filter.values:_bits": "reads nothing: a number's bits",
    "rmq_ha.server.dledger.election:Election._parse": "counts votes that were read",
    "rmq_ha.server.dledger.commit_log:DLedgerCommitLog._size_at": "test_dledger_commit_log",
    "rmq_ha.server.dledger.ledger_recovery:LedgerRecovery._entries": "our file: test_ledger_model",
    "rmq_ha.server.pop.look:_offset_of": "records that the store has checked",
    "rmq_ha.server.dledger.tail:LedgerTail._read_slice": "our own file: test_dledger_commit_log",
    "rmq_ha.server.store.index.index:IndexService._is_cut": "our own file: test_index",
    "rmq_ha.server.store.index.file:IndexFile.find": "our own file: test_index",
    "rmq_ha.server.store.index.file:IndexFile.truncate": "our own file: test_index",
}


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def takes_apart(node: ast.AST, own: set[str]) -> bool:
    name = dotted(node)
    last = node.attr if isinstance(node, ast.Attribute) else name
    return last in TAKES_APART or name in READS or name in own


def own_names(tree: ast.Module) -> set[str]:
    """Names of a module that stand for such: `_INT = Struct(...).unpack_from`."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(part, ast.Attribute)
            and (part.attr in TAKES_APART or dotted_call(part) in ("Decoder.decode",))
            for part in ast.walk(node.value)
        ):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def dotted_call(node: ast.Attribute) -> str:
    """`Decoder.decode` of `msgspec.json.Decoder(...).decode`."""
    if isinstance(node.value, ast.Call):
        return f"{dotted(node.value.func).rpartition('.')[2]}.{node.attr}"
    return ""


def functions(node: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Qualified names, as `code.co_qualname` says them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from functions(child, f"{inside}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{inside}{child.name}", child
            yield from functions(child, f"{inside}{child.name}.<locals>.")


def is_reader(name: str, function: ast.FunctionDef, own: set[str]) -> bool:
    last = name.rpartition(".")[2]
    if last in NAMED or last.startswith(NAMED_FROM):
        return True
    return any(takes_apart(part, own) for stmt in function.body for part in ast.walk(stmt))


@cache
def readers() -> frozenset[str]:
    """As `rmq_ha.base.wire.frame:FrameReader.receive_data`; none of packages in `ELSEWHERE`."""
    found: set[str] = set()
    for path in ROOT.rglob("*.py"):
        module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        text = path.read_text()
        if is_elsewhere(module) or not any(word in text for word in WORDS):
            continue
        tree = ast.parse(text)
        own = own_names(tree)
        found |= {
            f"{module}:{name}"
            for name, function in functions(tree)
            if is_reader(name, function, own)
        }
    return frozenset(found)


def is_elsewhere(reader: str) -> bool:
    """Somebody else looks after it."""
    return any(
        reader == place or reader.startswith((f"{place}.", f"{place}:")) for place in ELSEWHERE
    )
