"""Tell surfaces by their texture: image files go through filters, and become features.

    python examples/classify_surfaces.py [--images N] [--workers N]

The images are made of three photographs that come with scikit-image: brick, grass and gravel.
Tiles are cut out, turned, lit differently and made noisy, and written as PNG files. One task a file
reads it, takes out the noise, evens out the light, and describes the texture: by local binary
patterns of three sizes, and by what is left between filters of growing widths. Only the features
come back.

A classifier learns from tiles of the left halves of the photographs, and is asked about tiles of
the right halves. A plain loop in this process comes first and must find the same features, to the
bit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from skimage import data, exposure, feature, filters, io, restoration, transform
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from scaler_exec import ScalerExecutor

SURFACES = ("brick", "grass", "gravel")
TILE = 96  # pixels, of the 512 of a photograph
WIDTHS = (0.5, 1.0, 2.0, 4.0, 8.0)


def make_images(folder: Path, count: int) -> list[Path]:
    """Write tiles, of the surfaces in turn, the first half of them from the left halves."""
    random, paths = np.random.default_rng(3), []
    for number in range(count):
        name = SURFACES[number % len(SURFACES)]
        photo = getattr(data, name)() / 255.0
        half = np.hsplit(photo, 2)[number >= count // 2]
        # What is turned needs a margin: the diagonal of a tile.
        size = int(TILE * 1.5)
        top, left = (int(random.integers(edge - size)) for edge in half.shape)
        turned = transform.rotate(
            half[top : top + size, left : left + size], random.uniform(0, 360)
        )
        margin = (size - TILE) // 2
        tile = turned[margin : margin + TILE, margin : margin + TILE]
        lit = random.uniform(0.5, 1.0) * tile + np.linspace(0.0, random.uniform(0.0, 0.3), TILE)
        noisy = np.clip(lit + random.normal(0.0, 0.08, lit.shape), 0.0, 1.0)
        paths.append(folder / f"{number:05}-{name}.png")
        io.imsave(paths[-1], (255 * noisy).astype(np.uint8), check_contrast=False)
    return paths


def describe(path: Path) -> np.ndarray:
    """Return the features of the texture in a file."""
    image = restoration.denoise_tv_chambolle(io.imread(path) / 255.0, weight=0.05)
    even = exposure.equalize_adapthist(image / image.max())
    codes = (255 * even).astype(np.uint8)
    features = []
    for radius in (1, 2, 3):
        points = 8 * radius
        patterns = feature.local_binary_pattern(codes, points, radius, method="uniform")
        features += list(np.bincount(patterns.astype(int).ravel(), minlength=points + 2))
    for low, high in pairwise(WIDTHS):
        features.append(filters.difference_of_gaussians(even, low, high).std())
    return np.array(features, dtype=float)


def main() -> None:
    """Describe all images twice, learn from half of them, and ask about the others."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=240, metavar="N")
    parser.add_argument("--workers", type=int, metavar="N", help="default: one for each CPU")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        paths = make_images(Path(folder), args.images)
        start = time.perf_counter()
        expected = list(map(describe, paths))
        alone_s = time.perf_counter() - start
        with ScalerExecutor(args.workers) as executor:
            # The workers import scikit-image before the clock runs, as this process has.
            list(executor.map(describe, paths[:1] * executor._max_workers))
            start = time.perf_counter()
            found = list(executor.map(describe, paths))
            together_s = time.perf_counter() - start

    names = np.array([path.stem.partition("-")[2] for path in paths])
    half = len(paths) // 2
    model = make_pipeline(StandardScaler(), LogisticRegression())
    said = model.fit(found[:half], names[:half]).predict(found[half:])
    for name in SURFACES:
        asked = said[names[half:] == name]
        counts = ", ".join(f"{np.sum(asked == other)} {other}" for other in SURFACES)
        print(f"{len(asked)} tiles of {name}: taken for {counts}")
    right = np.mean(said == names[half:])
    print(f"{right:.1%} of the unknown tiles are recognized, by {len(found[0])} features")
    speed_up = alone_s / together_s
    print(f"one core {alone_s:.2f} s, workers {together_s:.2f} s: speed-up {speed_up:.2f}")
    if not np.array_equal(found, expected):
        sys.exit("the two runs differ")
    print("both runs agree to the bit")


if __name__ == "__main__":
    main()
