"""Small files with secrets in them: nobody else may read them."""

import os
import stat

from rmq_ha.base.errors import ConfigurationError


def read_private(path: str) -> bytes | None:
    """
    All of it; None: there is none.

    :raises ConfigurationError: others on this machine may read it too, or it cannot be read.
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
    Put it there as a whole; directories that are made for it are private, too.

    :raises ConfigurationError: the disk refuses; what was there stays.
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
