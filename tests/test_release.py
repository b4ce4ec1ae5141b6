"""What is uploaded: what tests/release.py says of wheels and tags, and the order of the changelog."""

from __future__ import annotations

import re
import zipfile

import pytest
from packaging.version import Version

from scaler_cluster import __version__
from tests import release
from tests.house import HOUSE

NAME = "scaler_exec-1.0-py3-none-any.whl"
GOOD = {
    **{f"{package}/py.typed": "" for package in release.PACKAGES},
    "scaler_exec-1.0.dist-info/WHEEL": "Root-Is-Purelib: true\nTag: py3-none-any\n",
}
WHEEL = next(iter(reversed(GOOD)))


def faults(directory, files, name=NAME) -> list[str]:
    """Return what is wrong with a wheel of these files."""
    with zipfile.ZipFile(directory / name, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return release.faults_of(directory / name)


def test_a_good_wheel_has_no_faults(tmp_path) -> None:
    """Five packages with their marks, for each Python 3."""
    assert faults(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scaler_exec/py.typed": None}, "scaler_exec has no py.typed"),
        ({"tests/test_it.py": ""}, "should hold the packages"),
        ({"scaler_exec/tests/test_it.py": ""}, "tests/test_it.py is not to be in it"),
        ({"scaler_exec/benchmarks/it.py": ""}, "benchmarks/it.py is not to be in it"),
        ({"scaler_exec/it.so": ""}, "it.so is not to be in it"),
        ({WHEEL: "Root-Is-Purelib: false\nTag: py3-none-any\n"}, "each machine"),
        ({WHEEL: "Root-Is-Purelib: true\nTag: cp313-cp313-linux\n"}, "each machine"),
    ],
)
def test_a_fault_of_a_wheel_is_found(change, said, tmp_path) -> None:
    """What is missing, what is too much, and what is for one machine."""
    files = {name: content for name, content in {**GOOD, **change}.items() if content is not None}

    assert said in " ".join(faults(tmp_path, files))


def test_a_wheel_for_one_python_is_found(tmp_path) -> None:
    """Its name says so."""
    assert "each machine" in faults(tmp_path, GOOD, "scaler_exec-1.0-cp313-cp313-any.whl")[0]


@pytest.mark.parametrize(
    ("tag", "version", "count"),
    [("v1.0", "1.0", 0), ("1.0", "1.0", 1), ("v1.0", "1.1", 2), ("v1.1", "1.1", 1)],
)
def test_a_tag_is_compared(tag, version, count) -> None:
    """With the version, and with the sections of the changelog."""
    changes = "# Changelog\n\n## [Unreleased]\n\n## [1.0] - 2026-11-28\n\n## [1.1]\n"

    assert len(release.faults_of_tag(tag, version, changes)) == count


def test_the_changelog_is_in_order() -> None:
    """What is not released comes first, then versions with their days, newest first."""
    changes = (HOUSE / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *others = re.findall(r"^## (.*)$", changes, re.MULTILINE)
    sections = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d", one) for one in others]
    versions = [Version(one[1]) for one in sections if one is not None]

    assert first == "[Unreleased]"
    assert len(versions) == len(others)
    assert versions == sorted(set(versions), reverse=True)
    assert all(one <= Version(__version__) for one in versions)
