"""Names of options: their aliases, and suggestions for unknown ones."""

from collections.abc import Mapping
from difflib import get_close_matches

from rmq_ha.base.config.tls_keys import TLS_KEYS
from rmq_ha.base.errors import WrongUsage

TLS_NAMES = tuple(name for name in TLS_KEYS if not name.startswith(("tls.server.", "tls.ha.")))
"""RocketMQ's TLS keys that are options of reads and writes."""
ALIASES = {
    "rocketmq.namesrv.addr": "namesrv",
    "nameServer": "namesrv",
    "namesrvAddr": "namesrv",
    "rocketmq.broker.addr": "brokerAddr",
    "topic": "subscribe",
    "subExpression": "tags",
    "pullTimeout": "pullTimeoutMs",
    "includeHeaders": "includeProperties",
}
"""Other spellings, most of them those of rocketmq-spark."""
_NOT_HERE = {
    "kafka.bootstrap.servers": "RocketMQ has name servers: write namesrv=host:port",
    "groupIdPrefix": "reads belong to no group here; `group` names one to pull as",
    "kafka.group.id": "reads belong to no group here; `group` names one to pull as",
    "consumer.group": "reads belong to no group here; `group` names one to pull as",
    "location": "the directory of a store is `path`; LOCATION is a clause of CREATE TABLE",
    "paths": "one store at a time: read each by itself and unite them with unionByName",
}
_SECRET = frozenset({"secretKey", "securityToken", "tls.client.keyPassword"})
_OF_SPARK = ("checkpointLocation", "queryName")
_OF_CATALOG = ("provider", "owner", "location", "external", "comment", "collation")
"""
Keys that Spark's catalog adds to the options of a table (`CREATE TABLE`), beside `option.NAME`.
"""


def by_name(
    given: Mapping[str, str], names: tuple[str, ...], aliases: Mapping[str, str] = ALIASES
) -> dict[str, str]:
    """
    Return the options under their proper names; case does not matter. Keys of Spark itself are left
    out.

    :param names: the allowed names; `TLS_NAMES` are allowed as well.
    :raises WrongUsage: an option is unknown (the text has a suggestion), or given twice with
        different values.
    """
    spelt = {name.lower(): name for name in (*names, *TLS_NAMES, *_OF_SPARK)}
    spelt |= {alias.lower(): name for alias, name in aliases.items()}
    not_here = {name.lower(): why for name, why in _NOT_HERE.items()}
    is_table = is_of_catalog(given)
    options: dict[str, str] = {}
    keys: dict[str, str] = {}
    for key, value in given.items():
        if is_table and (key.lower() in _OF_CATALOG or key.lower().startswith("option.")):
            continue
        name = spelt.get(key.lower())
        if name is None:
            raise WrongUsage(_unknown(key, not_here.get(key.lower()), names, aliases))
        if name in _OF_SPARK:
            continue
        if options.get(name, value) != value:
            first, other = (
                alias if name in _SECRET else f"{alias}={text!r}"
                for alias, text in ((keys[name], options[name]), (key, value))
            )
            raise WrongUsage(f"options {first} and {other} are the same option: give it once")
        options[name], keys[name] = value, key
    return options


def is_of_catalog(given: Mapping[str, str]) -> bool:
    """Return whether options are those of a table that was made by `CREATE TABLE`."""
    return any(key.lower() == "provider" for key in given)


def _unknown(key: str, why: str | None, names: tuple[str, ...], aliases: Mapping[str, str]) -> str:
    """
    Return the text of the error for an unknown option.

    :param why: what to use in its place, for options of other sources; None: a name like it is
        suggested.
    """
    if why is not None:
        return f"option {key}: {why}"
    spelt = {name.lower(): name for name in (*aliases, *names, *TLS_NAMES)}
    near = get_close_matches(key.lower(), spelt, n=1, cutoff=0.6)
    if near:
        return f"there is no option {key!r}; did you mean {spelt[near[0]]!r}?"
    return f"there is no option {key!r}; there are {', '.join(names)}, and tls.*"
