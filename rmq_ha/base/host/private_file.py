"""Small files with secrets, which no other user may read."""

import os
import stat

from rmq_ha.base.errors import ConfigurationError


def read_private(path: str) -> bytes | None:
    """
    Return the content of a file; None if it does not exist.

    :raises ConfigurationError: other users of this machine may read it, or this process cannot.
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ConfigurationError(
                    f"{path} has secrets, and others on this machine may read it: chmod 600 {path}"
                )
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None


def write_private(path: str, data: bytes) -> None:
    """
    Write a whole file; directories that are made for it are private, too.

    :raises ConfigurationError: the disk refuses; the old file stays.
    """
    temporary = f"{path}.tmp{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}; nothing changed") from None
