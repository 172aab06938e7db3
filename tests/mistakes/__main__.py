"""`python -m tests.mistakes [--only NAME ...] [--jobs N]`: make every mistake, write the table."""

from __future__ import annotations

import argparse
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

from tests.mistakes.book import make, mistakes, record
from tests.mistakes.forks import Forks
from tests.mistakes.mistake import Answer, Mistake

KEPT = threading.Lock()


OWN = threading.local()


def forks() -> Forks:
    """One for each thread."""
    if not hasattr(OWN, "forks"):
        OWN.forks = Forks()
    made: Forks = OWN.forks
    return made


def attempt(mistake: Mistake) -> Answer | None:
    began = time.monotonic()
    try:
        answer = make(mistake, forks())
    except Exception:
        traceback.print_exc()
        print(f"? {mistake.name} could not be made", flush=True)
        return None
    seconds = time.monotonic() - began
    with KEPT:
        record({mistake.name: answer})
    print(f"{answer.grade} {mistake.name:24} {seconds:5.1f} s  {answer.said[:1500]}", flush=True)
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(prog="mistakes", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="these mistakes")
    parser.add_argument("--jobs", type=int, default=2, help="so many at a time")
    options = parser.parse_args()
    wanted = [item for item in mistakes() if not options.only or item.name in options.only]
    with ThreadPoolExecutor(options.jobs) as pool:
        answers = list(pool.map(attempt, wanted))
    made = {
        item.name: answer
        for item, answer in zip(wanted, answers, strict=True)
        if answer is not None
    }
    return 0 if len(made) == len(wanted) and all(item.grade < "C" for item in made.values()) else 1


sys.exit(main())
