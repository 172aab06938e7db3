"""Says whether the packages of the extra `grpc` are installed; imports none of them."""

from importlib.util import find_spec

_MODULES = {"protobuf": "google.protobuf", "hpack": "hpack"}


def missing_package() -> str:
    """Return why no gRPC client can be served; empty if the packages for it are installed."""
    for package, module in _MODULES.items():
        if not _is_there(module):
            return f"gRPC clients need the package {package}: pip install 'rmq-ha[grpc]'"
    return ""


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing, too
        return False
