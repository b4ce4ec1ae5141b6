"""Build what is uploaded, and check it: ``python -m tests.release DIRECTORY [--tag v1.2.3]``.

``tox run -e release`` runs this with what it needs. ``docs/releasing.md`` tells when.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.house import CONFIG, HOUSE

SOURCES = CONFIG["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
PACKAGES = {Path(source).name for source in SOURCES}
ACCEPTED = "W002,W009"
"""Of check-wheel-contents: two files with the same content, as those of packages that hold nothing
themselves, and several packages in one wheel."""


def main() -> None:
    """Build, check, and say what there is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="emptied first")
    parser.add_argument("--tag", help="of which commit this is a release")
    given = parser.parse_args()
    sdist, wheel = build(given.directory)
    run("twine", "check", "--strict", str(sdist), str(wheel))
    same = [word for source in SOURCES for word in ("--package", str(HOUSE / source))]
    run("check_wheel_contents", "--ignore", ACCEPTED, *same, str(wheel))
    wrong = faults_of(wheel)
    if given.tag is not None:
        changes = (HOUSE / "CHANGELOG.md").read_text(encoding="utf-8")
        wrong += faults_of_tag(given.tag, version_of(wheel), changes)
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{sdist}\n{wheel}")


def build(directory: Path) -> tuple[Path, Path]:
    """Return the sdist and the wheel made of it, which is the same as the one made of the tree."""
    if directory.exists():
        shutil.rmtree(directory)
    run("build", "--no-isolation", "--outdir", str(directory), str(HOUSE))
    (sdist,), (wheel,) = directory.glob("*.tar.gz"), directory.glob("*.whl")
    with TemporaryDirectory() as other:
        run("build", "--no-isolation", "--wheel", "--outdir", other, str(HOUSE))
        (direct,) = Path(other).iterdir()
        if (direct.name, direct.read_bytes()) != (wheel.name, wheel.read_bytes()):
            sys.exit(f"the tree and the sdist make different wheels: {direct.name}, {wheel.name}")
    return sdist, wheel


def faults_of(wheel: Path) -> list[str]:
    """Return a sentence for all that is wrong with a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (about,) = (name for name in names if name.endswith(".dist-info/WHEEL"))
        tags = message_from_bytes(archive.read(about))
    found = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    wrong = []
    if found != PACKAGES:
        wrong.append(f"it should hold the packages {sorted(PACKAGES)}, not {sorted(found)}")
    wrong += [
        f"{package} has no py.typed" for package in PACKAGES if f"{package}/py.typed" not in names
    ]
    if not (
        wheel.name.endswith("-py3-none-any.whl")
        and tags.get_all("Tag") == ["py3-none-any"]
        and tags["Root-Is-Purelib"] == "true"
    ):
        wrong.append(f"{wheel.name} is not for each Python 3 of each machine")
    wrong += [
        f"{name} is not to be in it"
        for name in names
        if re.search(r"(^|/)(tests?|benchmarks|examples|__pycache__)/|\.(pyc|so|orig|rej)$", name)
    ]
    return wrong


def version_of(wheel: Path) -> str:
    """Return the version that a wheel's name says."""
    return wheel.name.split("-")[1]


def faults_of_tag(tag: str, version: str, changes: str) -> list[str]:
    """Return what keeps a commit with this tag from being a release."""
    wrong = []
    if tag != f"v{version}":
        wrong.append(f"the tag is {tag}, and the version {version}")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        wrong.append(f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD'")
    return wrong


def run(module: str, *arguments: str) -> None:
    """Run a module; if it fails, end with its exit status."""
    ended = subprocess.run([sys.executable, "-m", module, *arguments], check=False)
    if ended.returncode:
        sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
