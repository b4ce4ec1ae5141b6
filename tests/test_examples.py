"""The examples run as printed, from a shell, and end cleanly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["count_bigrams.py", str(ROOT / "docs"), str(ROOT / "examples")], "both counts agree"),
        (["estimate_pi_with_ray.py"], "pi is about 3.1"),
        (["price_options.py", "--options", "6"], "both runs agree to the bit"),
        (
            ["bootstrap_intervals.py", "--users", "20000", "--replicates", "60"],
            "both runs agree to the bit",
        ),
        (["race_policies.py", "--rounds", "8", "--days", "1000"], "both runs agree to the bit"),
        (["serve_risk.py", "--scenarios", "50000"], "both runs agree to the bit"),
        (["classify_surfaces.py", "--images", "18"], "both runs agree to the bit"),
        (["clean_orders.py", "--files", "4", "--rows", "2000"], "both runs wrote the same"),
        (
            ["backtest_strategies.py", "--years", "3", "--shuffles", "1"],
            "both runs agree to the bit",
        ),
        (["watch_prices.py", "--ticks", "20", "--workers", "2"], "20 prices valued"),
        (["tune_classifier.py", "--images", "300", "--candidates", "4"], "all scores agree"),
        (["search_by_futures.py", "--tries", "60"], "the frequency is"),
    ],
)
def test_example_runs(arguments: list[str], expected: str) -> None:
    """An example exits with 0 and prints what it promises."""
    script = ROOT / "examples" / arguments[0]

    done = subprocess.run(
        [sys.executable, str(script), *arguments[1:]],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert expected in done.stdout
