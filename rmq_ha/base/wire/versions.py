"""Names of RocketMQ versions by the ordinal that headers carry.

Java's enum of versions is regular, so the names are computed. Sixteen names belong to 3.0.0. After
them each version has two names: its snapshot, then its release. 3.0 goes up to patch 15 and all
others to 9; 3.3 to 3.9 have no patch 0. A test compares the names with Java's list.

Spec: remoting.md, section 1.5.
"""

from functools import lru_cache

V3_0_7_SNAPSHOT = 28
V3_0_11 = 37
V3_1_8_SNAPSHOT = 62
V3_4_9 = 121
V4_1_0_SNAPSHOT = 232
V4_9_4 = 401
V4_9_7 = 407
V5_0_0 = 413
HIGHER_VERSION = 612

_FIRST = (
    *("SNAPSHOT", "ALPHA1", "BETA1", "BETA2", "BETA3", "BETA4", "BETA5"),
    *("BETA6_SNAPSHOT", "BETA6", "BETA7_SNAPSHOT", "BETA7", "BETA8_SNAPSHOT", "BETA8"),
    *("BETA9_SNAPSHOT", "BETA9", "FINAL"),
)


def _patches(major: int, minor: int) -> range:
    if (major, minor) == (3, 0):
        return range(1, 16)
    return range(1 if major == 3 and minor >= 3 else 0, 10)


@lru_cache(maxsize=1)
def version_names() -> tuple[str, ...]:
    """Return the names of all versions; the index of a name is its ordinal."""
    names = [f"V3_0_0_{suffix}" for suffix in _FIRST]
    for major in (3, 4, 5):
        for minor in range(10):
            for patch in _patches(major, minor):
                release = f"V{major}_{minor}_{patch}"
                names += (f"{release}_SNAPSHOT", release)
    names.append("HIGHER_VERSION")
    return tuple(names)


def version_name(ordinal: int) -> str:
    """
    The name of a version; ordinals beyond the last are HIGHER_VERSION, negative ones the first.

    :param ordinal: the header's `version`.
    """
    names = version_names()
    return names[max(0, min(ordinal, len(names) - 1))]
