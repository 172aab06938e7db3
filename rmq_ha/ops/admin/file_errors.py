"""What commands say when the disk refuses a file that they read or write."""


def file_error_text(error: OSError) -> str:
    """Return path, reason and next step; only the reason if the error names no path."""
    if not (error.filename and error.strerror):
        return str(error)
    path = str(error.filename).removesuffix(".tmp")  # the name under which a file is written first
    return (
        f"{path}: {error.strerror}: name a place where this user may read and write, or give the "
        "user the right to it"
    )
