"""What MkDocs calls while it builds the site: pages from elsewhere in the repository, generated parts, links."""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

from documentation import generated, markdown, notebooks

ROOT = Path(__file__).parents[2]
DOCS = "docs"
HOME = "README.md"  # of the repository: the page that the site opens with
ELSEWHERE = "repository"  # below it, files of the repository that pages link to
ALWAYS = (HOME, "CONTRIBUTING.md", "CHANGELOG.md", "results/README.md")
# Pages that other branches bring; each entry goes when its page has come.
COMING = frozenset(
    f"{name}.md"
    for name in ("rails-and-rdma",)
)  # fmt: skip

_MARKED = re.compile(r"^( *(?:`{3,}|~{3,}) *[\w+-]+) [^`]*$")
_log = logging.getLogger("mkdocs.hooks.documentation")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Anchors as forges make them; pages that are to come are left out of the navigation."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    config.nav = _present(config.nav)
    return config


def _present(entries: Any) -> Any:
    """The navigation without pages that are to come and are not there yet."""
    if isinstance(entries, list):
        return [kept for kept in map(_present, entries) if kept]
    if isinstance(entries, dict):
        return {title: kept for title, below in entries.items() if (kept := _present(below))}
    return entries if entries not in COMING or (ROOT / DOCS / entries).exists() else None


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the repository's own pages, and a page for each of its files that a page links to."""
    wanted = [*ALWAYS, *(f"{DOCS}/{file.src_uri}" for file in files.documentation_pages())]
    seen = set(wanted)
    for path in wanted:
        if not path.startswith(f"{DOCS}/"):
            files.append(_page_of(path, config))
        text = (ROOT / path).read_text(encoding="utf-8") if path.endswith(".md") else ""
        for target in markdown.links(text):
            linked = markdown.resolved(path, target)
            if linked not in seen and not linked.startswith(f"{DOCS}/") and (ROOT / linked).is_file():
                seen.add(linked)
                wanted.append(linked)
    for notebook in sorted((ROOT / DOCS).glob("*/*.ipynb")):
        uri = uri_of(notebook.relative_to(ROOT).as_posix())
        files.append(File.generated(config, uri, content=notebooks.page(notebook)))
    return files


def _page_of(path: str, config: MkDocsConfig) -> File:
    """A file of the repository as a page of the site."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if not path.endswith(".md"):
        text = f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n````{_language(path)}\n{text}````\n"
    elif path == "CHANGELOG.md":
        text = f"---\nsearch: {{boost: 0.2}}\n---\n{text}"
    inclusion = InclusionLevel.INCLUDED if path in ALWAYS else InclusionLevel.NOT_IN_NAV
    return File.generated(config, uri_of(path), content=text, inclusion=inclusion)


def _language(path: str) -> str:
    known = {".yaml": "yaml", ".py": "python", ".service": "ini", ".timer": "ini", ".csv": "text", ".txt": "text"}
    return known.get(Path(path).suffix, "bash")


def uri_of(path: str) -> str:
    """Where the site has a file of the repository."""
    if path == HOME:
        return "index.md"
    if path.startswith(f"{DOCS}/"):
        return re.sub(r"\.ipynb$", ".md", path.removeprefix(f"{DOCS}/"))
    return f"{ELSEWHERE}/{path}" + ("" if path.endswith(".md") else ".md")


def path_of(uri: str) -> str:
    """Where what a page of the site says was written: its links lead from there."""
    if uri == "index.md":
        return HOME
    return uri.removeprefix(f"{ELSEWHERE}/") if uri.startswith(f"{ELSEWHERE}/") else f"{DOCS}/{uri}"


def on_page_markdown(text: str, *, page: Page, **_: Any) -> str:
    """The page as the site shows it."""
    path = path_of(page.file.src_uri)
    for number in markdown.loose_lists(text):
        _log.warning("%s:%d: a list needs an empty line before it", path, number)
    here = posixpath.dirname(page.file.src_uri)

    def moved(target: str) -> str:
        return posixpath.relpath(uri_of(markdown.resolved(path, target)), here or ".")

    whole = generated.expanded(markdown.relinked(text, moved))
    return "\n".join(_MARKED.sub(r"\1", line) for line in whole.splitlines())
