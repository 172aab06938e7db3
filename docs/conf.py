"""The documentation site: `tox -e docs` builds it, and fails on a link that leads nowhere."""

from importlib.metadata import version as installed_version

project = "rmq-ha"
version = release = installed_version("rmq-ha")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinxcontrib.zopeext.autointerface"]
exclude_patterns = ["news/*"]
html_theme = "furo"
html_title = "rmq-ha"

myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
