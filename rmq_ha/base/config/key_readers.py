"""Tells which server of rmq-ha reads a key, so that a file of another server is recognized."""

from collections.abc import Iterator
from contextlib import contextmanager

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.controller import ControllerConfiguration
from rmq_ha.base.config.fields import keys_of
from rmq_ha.base.config.namesrv_configuration import NamesrvConfiguration
from rmq_ha.base.config.settings import ConfigNotice
from rmq_ha.base.errors import ConfigurationError


def readers(key: str) -> list[str]:
    """Return the programs that read a key; empty: no program reads it."""
    broker, namesrv, controller = (
        BrokerConfiguration(),
        NamesrvConfiguration(),
        ControllerConfiguration(),
    )
    targets = {
        "rmqha-broker": (*broker.own_objects, broker.unserved),
        "rmqha-namesrv": (*namesrv.own_objects, namesrv.unserved),
        "rmqha-controller": (*controller.own_objects, controller.unserved),
    }
    return [
        program
        for program, objects in targets.items()
        if any(key in keys_of(target) for target in objects)
    ]


def with_programs(notices: list[ConfigNotice]) -> list[ConfigNotice]:
    """Add to each notice of an unknown key the program that would read the key."""
    return [_with_program(notice) for notice in notices]


def _with_program(notice: ConfigNotice) -> ConfigNotice:
    if not notice.is_unknown:
        return notice
    where, _, rest = notice.text.partition("unknown key ")
    key = rest.partition(";")[0].partition(":")[0]
    programs = readers(key)
    if not programs:
        return notice
    return notice._replace(
        text=f"{where}unknown key {key}: a key of {' and '.join(programs)}, not of this server: "
        "is this the right file?"
    )


@contextmanager
def with_unknown_keys(notices: list[ConfigNotice]) -> Iterator[None]:
    """
    Name the unknown keys also if the start fails: a misspelled key may be the cause.

    :param notices: the notices that the block collects; each one gets its program at the end.
    :raises ConfigurationError: the block raised it; a line for each unknown key is added.
    """
    try:
        yield
    except ConfigurationError as error:
        unknown = [notice.text for notice in with_programs(notices) if notice.is_unknown]
        if not unknown:
            raise
        raise ConfigurationError("\n".join([str(error), *unknown])) from None
    notices[:] = with_programs(notices)
