"""How Sphinx makes these pages: ``tox run -e docs``."""

from __future__ import annotations

from scaler_cluster import __version__

project = "scaler-exec"
author = "the scaler-exec developers"
release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
html_theme = "furo"
html_title = f"scaler-exec {release}"
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
# Signatures name types as the code does; a page for each would help nobody.
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
add_module_names = False
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
