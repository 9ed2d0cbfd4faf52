"""What mkdocs does beside its own: the README is the first page, and `llms.txt` has every page in one file."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Files beside the folder of the docs, and what they are called in the site."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie beside the docs."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](").replace("[Apache-2.0](LICENSE)", "Apache-2.0")
        files.append(File.generated(config, page, content=_linked(text)))
    return files


def on_page_markdown(markdown: str, **_more: object) -> str:
    """Links to the files beside the docs lead to their pages."""
    return _linked(markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Write `llms.txt`."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "adr").glob("*.md"))]
    text = "\n\n".join(page.read_text(encoding="utf-8") for page in pages)
    (Path(config.site_dir) / "llms.txt").write_text(text, encoding="utf-8")


def _linked(text: str) -> str:
    return re.sub(r"\]\((?:\.\./)?(README|CHANGELOG|CONTRIBUTING)\.md", lambda m: f"]({PAGES[m[1] + '.md']}", text)
