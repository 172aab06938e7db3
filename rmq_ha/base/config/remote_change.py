"""Which settings a request may change, and why it may not change the others.

UPDATE_BROKER_CONFIG (25) and UPDATE_NAMESRV_CONFIG (318) write into the file that the next start
reads, so a key is as dangerous there as in the file.

Spec: remoting.md, sections 2.3 and 7.9.
"""

from collections.abc import Iterable
from typing import Any

from rmq_ha.base.config.all_keys import ALL_KEYS
from rmq_ha.base.config.fields import Key, Local, keys_of
from rmq_ha.base.config.unserved_keys import UnservedKey


def local_reason(key: str) -> str | None:
    """
    Return why only the file of a server changes this key; None: a request may change it.

    Keys of plugins and of `tls.` are recognized by their form, also where the key is unknown.
    """
    row = ALL_KEYS.get(key)
    reason = row.local if row is not None else None
    if reason is None and key.endswith("PlugIn"):
        reason = Local.CODE
    if reason is None and key.startswith("tls."):
        reason = Local.CONNECTS
    if reason is None and "." in key.strip("."):
        reason = Local.PLUGIN
    return None if reason is None else reason.value


def refusal(keys: Iterable[str]) -> str | None:
    """
    Return the refusal of a request that changes these keys; None: the request may change them.

    A local key that this server does not read is refused, too: another version may read the file.
    """
    reasons = [(key, local_reason(key)) for key in sorted(keys)]
    refused = [f"{key} ({reason})" for key, reason in reasons if reason is not None]
    if not refused:
        return None
    return (
        f"{', '.join(refused)} can only be changed in the properties file of this server, with a "
        "restart; nothing was changed"
    )


def fixed_refusal(
    targets: Iterable[Any], keys: Iterable[str], server: str, others: Iterable[Any] = ()
) -> str | None:
    """
    Return the refusal of a request that changes keys which a running server does not read again.

    :param targets: the configuration objects of the server.
    :param keys: the keys of the request; unknown ones are ignored, as in RocketMQ.
    :param server: the running program in words, such as `the broker`.
    :param others: objects of the same file of which the request may change no key.
    :returns: the text of the refusal; None: all keys may change.
    """
    own = {name: row for target in targets for name, row in keys_of(target).items()}
    fixed_rows = {name: row for target in others for name, row in keys_of(target).items()} | own
    fixed = [
        fixed_rows[key]
        for key in sorted(keys)
        if key in fixed_rows and not (key in own and own[key].is_mutable)
    ]
    if not fixed:
        return None
    return f"{', '.join(_why_fixed(row, server) for row in fixed)}; nothing was changed"


def _why_fixed(row: Key, server: str) -> str:
    if isinstance(row, UnservedKey):
        return f"{row.name} has no effect here" + ("" if row.is_silent else f" ({row.reason})")
    return (
        f"{row.name} cannot change while {server} runs: it is read at the start; edit its "
        "properties file and restart it"
    )
