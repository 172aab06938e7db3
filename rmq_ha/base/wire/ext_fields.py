"""Typed headers as ext fields.

Spec: remoting.md, section 1.9.
"""

from functools import lru_cache

import msgspec


def ext_fields(header: msgspec.Struct, form: type[msgspec.Struct] | None = None) -> dict[str, str]:
    """
    What a header says, as upstream writes it: an absent field is left out, a boolean is a word.

    :param form: the class whose names the fields get on the wire, where it is not the header's own.
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
    """Of each field the name here and on the wire; msgspec finds them out anew each time."""
    return tuple((item.name, item.encode_name) for item in msgspec.structs.fields(form))
