"""Raises the number of files and connections that this process may open."""

import resource

FEW = 4096


def allow_descriptors() -> int:
    """
    Raise the soft limit to the hard one, as the JVM does for the Java broker.

    :returns: the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # some systems refuse what they themselves call the limit
            return soft
    return hard


def complaint(limit: int) -> str | None:
    """Return a warning for the operator if the limit is low; None: the limit is high enough."""
    if limit == resource.RLIM_INFINITY or limit >= FEW:
        return None
    return (
        f"only {limit} open files and connections are allowed: raise the hard limit "
        "(ulimit -Hn, LimitNOFILE= of systemd) to some ten thousand"
    )
