"""Turns typed headers into ext fields.

Spec: remoting.md, section 1.9.
"""

from functools import lru_cache

import msgspec


def ext_fields(header: msgspec.Struct, form: type[msgspec.Struct] | None = None) -> dict[str, str]:
    """
    Return the fields of a header as RocketMQ writes them: an absent field is left out, a boolean is
    a word.

    :param form: the class whose field names are used on the wire; None: the header's own class.
    """
    ext: dict[str, str] = {}
    for name, encoded in _names(form or type(header)):
        value = getattr(header, name)
        if isinstance(value, bool):
            ext[encoded] = "true" if value else "false"
        elif value is not None:
            ext[encoded] = str(value)
    return ext


@lru_cache(maxsize=256)
def _names(form: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """
    Return the name of each field here and on the wire. msgspec would find them out anew each time.
    """
    return tuple((item.name, item.encode_name) for item in msgspec.structs.fields(form))
