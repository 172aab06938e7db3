"""The files of the page, read once from the package."""

from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

_TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
FOLDER = "web"


class PageFile(NamedTuple):
    """
    A file of the page.

    :ivar etag: changes with the file's content.
    """

    content_type: bytes
    data: bytes
    etag: bytes


def page_files() -> dict[str, PageFile]:
    by_name = {}
    for item in files("rmq_ha.ops.app.page").joinpath(FOLDER).iterdir():
        content_type = _TYPES.get(item.name.rpartition(".")[2])
        if content_type is not None:
            data = item.read_bytes()
            by_name[item.name] = PageFile(
                content_type, data, sha256(data).hexdigest()[:20].encode()
            )
    return by_name
