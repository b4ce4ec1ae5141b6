"""Count the word bigrams of every text file below some paths: one task a file, all cores.

    python examples/count_bigrams.py [--workers N] [--top N] [PATH ...]

Without a path it reads the standard library of the Python that runs it. The same work is done
first in this process, with ``map`` in place of ``executor.map`` and no other difference: that is
the check of the result, and the one core that the speed-up is measured against.
"""

from __future__ import annotations

import argparse
import re
import sys
import sysconfig
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from scaler_exec import ScalerExecutor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
SENTENCE_END = re.compile(r"[.!?]\s+|\n\s*\n")
PROBE_BYTES = 8192  # as much as git reads to tell text from the rest
APART = ("site-packages", "dist-packages")  # below the library, but no part of it


def bigrams(text: str) -> Iterator[str]:
    """Yield each two words that follow each other within a sentence."""
    for sentence in SENTENCE_END.split(text.casefold()):
        words = WORD.findall(sentence)
        yield from map(" ".join, pairwise(words))


def count_bigrams(path: str) -> tuple[str, dict[str, int]]:
    """Return a file's bigrams: those that occur once, a line each, and the others with counts.

    Most occur once. As one string they cost a tenth of what they would in a dictionary to send.
    """
    counts = Counter(bigrams(Path(path).read_text(encoding="utf-8", errors="replace")))
    once = [bigram for bigram, count in counts.items() if count == 1]
    return "\n".join(once), {bigram: count for bigram, count in counts.items() if count > 1}


def merge(results: Iterable[tuple[str, dict[str, int]]]) -> Counter[str]:
    """Return the sum of the counts of all files."""
    total: Counter[str] = Counter()
    for once, more in results:
        total.update(once.splitlines())
        total.update(more)
    return total


def is_text(path: Path) -> bool:
    """Tell whether a file is readable, not empty and free of NUL bytes at its head."""
    try:
        with path.open("rb") as file:
            head = file.read(PROBE_BYTES)
    except OSError:
        return False
    return bool(head) and b"\0" not in head


def find_texts(paths: list[Path]) -> Iterator[Path]:
    """Yield the text files among and below the paths, each once, in a fixed order."""
    seen: set[Path] = set()
    for path in paths:
        for found in sorted(path.rglob("*")) if path.is_dir() else [path]:
            file = found.resolve()
            if file not in seen and file.is_file() and is_text(file):
                seen.add(file)
                yield file


def standard_library() -> list[Path]:
    """Return the folders and files of the running Python's own library."""
    return [path for path in Path(sysconfig.get_path("stdlib")).iterdir() if path.name not in APART]


def on_one_core(files: list[str]) -> tuple[Counter[str], float]:
    """Return the counts and the seconds of a plain loop in this process."""
    start = time.perf_counter()
    total = merge(map(count_bigrams, tqdm(files, desc="one core ", unit="file", leave=False)))
    return total, time.perf_counter() - start


def on_all_cores(files: list[str], workers: int | None) -> tuple[Counter[str], float, float, int]:
    """Return the counts, the seconds, those of them spent on starting up, and the workers."""
    start = time.perf_counter()
    with ScalerExecutor(workers) as executor:
        executor.submit(int).result()
        ready = time.perf_counter()
        counts = executor.map(count_bigrams, files)
        progress = tqdm(counts, total=len(files), desc="all cores", unit="file", leave=False)
        total = merge(progress)
        end = time.perf_counter()
        return total, end - start, ready - start, executor._max_workers


def main() -> int:
    """Count twice, print what was found and how fast; return the exit code."""
    parser = argparse.ArgumentParser(description="Count the word bigrams of text files.")
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    parser.add_argument("--workers", type=int, metavar="N", help="default: one for each CPU")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="lines of the table")
    options = parser.parse_args()
    for path in options.paths:
        if not path.exists():
            parser.error(f"there is no {path}")

    files = [str(path) for path in find_texts(options.paths or standard_library())]
    if not files:
        parser.error("no text file below the given paths")

    expected, alone_s = on_one_core(files)
    total, together_s, start_s, workers = on_all_cores(files, options.workers)

    print(f"{'count':>9}  bigram")
    for bigram, count in sorted(total.items(), key=lambda item: (-item[1], item[0]))[: options.top]:
        print(f"{count:>9,}  {bigram}")
    print()
    print(f"{total.total():,} bigrams, {len(total):,} different, in {len(files):,} files")
    busy_s = together_s - start_s
    print(f"one core       {alone_s:7.2f} s  {len(files) / alone_s:8,.0f} tasks/s")
    print(
        f"{workers} workers      {busy_s:7.2f} s  {len(files) / busy_s:8,.0f} tasks/s"
        f"  speed-up {alone_s / busy_s:.2f}"
        f"  ({alone_s / together_s:.2f} with {start_s:.2f} s of starting up)"
    )
    if total != expected:
        print("the two counts DIFFER", file=sys.stderr)
        return 1
    print("both counts agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
