"""Which build of rmq-ha runs, for the log and for /metrics."""

import platform

import rmq_ha
import twisted
from rmq_ha.base.runs.maker import CHOICE


def build_labels() -> dict[str, str]:
    """Return the versions of rmq-ha, Python and the libraries that it uses."""
    return {
        "version": rmq_ha.__version__,
        "python": platform.python_version(),
        "twisted": str(twisted.__version__),
        "kernel": CHOICE.name,
    }


def build_text() -> str:
    labels = build_labels()
    return f"rmq-ha {labels['version']} on Python {labels['python']}, Twisted {labels['twisted']}"
