"""The examples run as printed, from a shell, and end cleanly."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SPEED = r": speed-up \d+\.\d\d\n"
EQUAL = SPEED + "both runs agree to the bit\n"

PROMISES = {
    f"count_bigrams.py {ROOT / 'docs'} {EXAMPLES}": [r"speed-up \d", "both counts agree\n"],
    "estimate_pi_with_ray.py": ["pi is about 3.1"],
    "search_by_futures.py --tries 60": ["60 tries: the frequency is "],
    "watch_prices.py --ticks 20 --workers 2": ["20 prices valued"],
    "price_options.py --options 6": ["standard errors off the closed form\n", EQUAL],
    "backtest_strategies.py --years 3 --shuffles 1": [r"on the second half it has -?\d", EQUAL],
    "bootstrap_intervals.py --users 20000 --replicates 60": [r"error \d\S+, in theory \d", EQUAL],
    "classify_surfaces.py --images 18": [r"\d\.\d% of the unknown tiles are recognized", EQUAL],
    "tune_classifier.py --images 300 --candidates 4 --workers 2": [
        SPEED + "all scores agree to the bit\n"
    ],
    "clean_orders.py --files 4 --rows 2000": [
        # Each file has lost 2 % of its 2,000 orders, and no order is there twice.
        r"\n7,8\d\d orders, (\d\S+) euros; made were \1\n",
        SPEED + "both runs wrote the same\n",
    ],
    "race_policies.py --rounds 8 --days 1000": [r"of 1,536 simulations, \d+ counted and", EQUAL],
    "serve_risk.py --scenarios 50000": [
        r"the client is gone: [1-9]\S* of 10,000 tasks are cancelled\n",
        r"the deadline has passed: [1-9]\S* of 10,000 tasks are cancelled\n",
        "the answer after the deadline is 504",
        r"\+- \d\S+, closed form \d",
        EQUAL,
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("command", PROMISES, ids=lambda command: command.split()[0])
def test_an_example_runs(command: str) -> None:
    """An example exits with 0 and prints what it promises; its both ways find the same."""
    name, *arguments = command.split()

    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    for promise in PROMISES[command]:
        assert re.search(promise, done.stdout), done.stdout
    assert "Traceback" not in done.stderr


def test_all_examples_are_tried() -> None:
    """No program is left out here, but what a test of its own runs; nor in the readers' list."""
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    shown = re.findall(
        r"^\| \[`(\w+\.py)`\]\(\1\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE
    )

    assert set(shown) == programs
    assert {command.split()[0] for command in PROMISES} == programs - {"worker_from_scratch.py"}
