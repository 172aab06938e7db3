"""Typed headers as ext fields.

Spec: remoting.md, section 1.9.
"""

import msgspec


def ext_fields(header: msgspec.Struct, form: type[msgspec.Struct] | None = None) -> dict[str, str]:
    """
    What a header says, as upstream writes it: an absent field is left out, a boolean is a word.

    :param form: the class whose names the fields get on the wire, where it is not the header's own.
    """
    ext: dict[str, str] = {}
    for item in msgspec.structs.fields(form or header):
        value = getattr(header, item.name)
        if isinstance(value, bool):
            ext[item.encode_name] = "true" if value else "false"
        elif value is not None:
            ext[item.encode_name] = str(value)
    return ext
