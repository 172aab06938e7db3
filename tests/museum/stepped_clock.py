"""A wall clock that is set while brokers run under it; the monotonic clock goes on."""

from __future__ import annotations

import shutil
import subprocess

from tests.interop.rig import Rig
from tests.museum.exhibit import NotHere

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
    What a rig starts from now on has the wall clock of the machine, plus what was said last.

    :raises NotHere: there is no C compiler.
    """

    def __init__(self, rig: Rig) -> None:
        if COMPILER is None:
            raise NotHere("no C compiler on this machine")
        library = rig.directory / "clock.so"
        self._step = rig.directory / "clock.step"
        self._step.write_bytes(bytes(8))
        source = rig.directory / "clock.c"
        source.write_text(SOURCE)
        command = [COMPILER, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"]
        subprocess.run(list(map(str, command)), check=True)
        rig.environment = {"LD_PRELOAD": str(library), "MUSEUM_CLOCK": str(self._step)}

    def set(self, seconds: int) -> None:
        """Set it so many seconds off."""
        with self._step.open("r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))
