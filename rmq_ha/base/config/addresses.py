"""Replaces host names by addresses, once before the start, in keys that need an address."""

from collections.abc import Iterable, Mapping
from typing import Any

from rmq_ha.base.config.fields import keys_of
from rmq_ha.base.config.settings import ConfigNotice, Setting, reason_to_doubt
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.model.networks import canonical

ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})
"""A listener with one of these addresses listens on all addresses."""


def resolve_names(
    targets: Iterable[Any],
    settings: Mapping[str, Setting],
    surroundings: Surroundings,
    notices: list[ConfigNotice],
) -> None:
    """
    Replace host names by their addresses, and note each address.

    A listener takes no name, and the record of a message has room for an address only.

    :raises ConfigurationError: a name stands for no address on this machine.
    """
    for target in targets:
        for key, row in keys_of(target).items():
            setting = settings.get(key)
            value = getattr(target, row.attribute)
            if not row.is_resolved or setting is None or not value or canonical(value):
                continue
            address = surroundings.resolve(value)
            if address is None:
                raise setting.error(
                    reason_to_doubt(value)
                    or "this is no address, and no name that stands for one on this machine; write "
                    "the address, or mend DNS or /etc/hosts"
                )
            setattr(target, row.attribute, address)
            notice = ConfigNotice(f"{setting.where}: {key}={value} becomes {address}")
            if notice not in notices:  # a key of two targets
                notices.append(notice)


def add_own_name(targets: Iterable[Any], surroundings: Surroundings) -> None:
    """
    Set an empty `metricsHostNames` to the name of this machine, by which /metrics may be asked for.
    """
    for target in targets:
        if getattr(target, "metrics_host_names", None) == "":
            target.metrics_host_names = surroundings.host_name
