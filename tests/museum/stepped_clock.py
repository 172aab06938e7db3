"""A wall clock that is set while brokers run under it; the monotonic clock goes on."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *step;
static int (*real)(clockid_t, struct timespec *);

static void __attribute__((constructor)) begin(void) {
    real = dlsym(RTLD_NEXT, "clock_gettime");
    int file = open(getenv("MUSEUM_CLOCK"), O_RDONLY);
    step = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (step && clock == CLOCK_REALTIME) now->tv_sec += *step;
    return result;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec fine;
    clock_gettime(CLOCK_REALTIME, &fine);
    now->tv_sec = fine.tv_sec;
    now->tv_usec = fine.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}
"""
COMPILER = shutil.which("cc")


class SteppedClock:
    """
    What is started `under` it has the wall clock of the machine, plus what was said last.

    :param folder: of the library and of the step.
    """

    def __init__(self, folder: Path) -> None:
        assert COMPILER is not None, "no C compiler on this machine"
        self._library = folder / "clock.so"
        self._step = folder / "clock.step"
        self.set(0)
        source = folder / "clock.c"
        source.write_text(SOURCE)
        command = [COMPILER, "-shared", "-fPIC", "-O1", "-o", self._library, source, "-ldl"]
        subprocess.run(list(map(str, command)), check=True)

    def set(self, seconds: int) -> None:
        """Set it so many seconds off."""
        if not self._step.exists():
            self._step.write_bytes(bytes(8))
        with self._step.open("r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))

    @contextlib.contextmanager
    def under(self) -> Iterator[None]:
        """Processes that are started meanwhile have this clock for their life."""
        ours = {"LD_PRELOAD": str(self._library), "MUSEUM_CLOCK": str(self._step)}
        before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
