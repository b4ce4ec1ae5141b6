"""How Sphinx makes these pages: ``tox run -e docs``."""

from __future__ import annotations

import sys
from pathlib import Path

from scaler_cluster import __version__

sys.path.insert(0, str(Path(__file__).parent))

project = "scaler-exec"
author = "the scaler-exec developers"
release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "site_files",
]
html_theme = "furo"
html_title = f"scaler-exec {release}"
html_static_path = ["_static"]
html_favicon = "_static/logo.svg"
html_theme_options = {"light_logo": "logo.svg", "dark_logo": "logo.svg"}
# Each page lies there as Markdown anyway: site_files.py.
html_copy_source = False
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
# Signatures name types as the code does; a page for each would help nobody.
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
add_module_names = False
# One parameter a line where they do not fit into one.
python_maximum_signature_line_length = 88
linkcheck_timeout = 20
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
