"""MkDocs hooks: add pages from elsewhere in the repository, fill in generated parts, and rewrite links."""

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
LANGUAGES = {".yaml": "yaml", ".py": "python", ".toml": "toml", ".service": "ini", ".timer": "ini", ".csv": "text",
             ".txt": "text", ".jsonl": "text"}  # fmt: skip

_MARKED = re.compile(r"^( *(?:`{3,}|~{3,}) *[\w+-]+) [^`]*$")
_log = logging.getLogger("mkdocs.hooks.documentation")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make anchors of headings as forges (GitHub) make them."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the repository's own pages, and a page for each of its files that a page links to."""
    wanted = [*ALWAYS, *(f"{DOCS}/{file.src_uri}" for file in files.documentation_pages())]
    seen = set(wanted)
    for path in wanted:
        if not path.startswith(f"{DOCS}/"):
            files.append(_page_of(path, config))
        text = _text_of(path) if path.endswith(".md") else ""
        for target in markdown.links(text):
            linked = markdown.resolved(path, target)
            if linked not in seen and not linked.startswith(f"{DOCS}/") and (ROOT / linked).exists():
                seen.add(linked)
                wanted.append(linked)
    for notebook in sorted((ROOT / DOCS).glob("*/*.ipynb")):
        uri = uri_of(notebook.relative_to(ROOT).as_posix())
        files.append(File.generated(config, uri, content=notebooks.page(notebook)))
    return files


def _page_of(path: str, config: MkDocsConfig) -> File:
    """Return a file or folder of the repository as a page of the site."""
    if (ROOT / path).is_dir():
        inside = sorted(file for file in (ROOT / path).rglob("*") if file.suffix in LANGUAGES and file.is_file())
        shown = [file.relative_to(ROOT).as_posix() for file in inside]
        text = f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n" + "\n".join(
            f"## {one}\n\n{_code(one)}" for one in shown
        )
    elif not path.endswith(".md"):
        text = f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n{_code(path)}"
    else:
        text = ("---\nsearch: {boost: 0.2}\n---\n" if path == "CHANGELOG.md" else "") + _text_of(path)
    inclusion = InclusionLevel.INCLUDED if path in ALWAYS else InclusionLevel.NOT_IN_NAV
    return File.generated(config, uri_of(path), content=text, inclusion=inclusion)


def _text_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def _code(path: str) -> str:
    return f"````{LANGUAGES.get(Path(path).suffix, 'bash')}\n{_text_of(path).rstrip()}\n````\n"


def uri_of(path: str) -> str:
    """Return the address at which the site has a file of the repository."""
    if path == HOME:
        return "index.md"
    if path.startswith(f"{DOCS}/"):
        return re.sub(r"\.ipynb$", ".md", path.removeprefix(f"{DOCS}/"))
    return f"{ELSEWHERE}/{path}" + ("" if path.endswith(".md") else ".md")


def path_of(uri: str) -> str:
    """Return the path in the repository of a page's source, from which its links lead."""
    if uri == "index.md":
        return HOME
    return uri.removeprefix(f"{ELSEWHERE}/") if uri.startswith(f"{ELSEWHERE}/") else f"{DOCS}/{uri}"


def on_page_markdown(text: str, *, page: Page, **_: Any) -> str:
    """Return the page with its generated parts, and its links as the site needs them."""
    path = path_of(page.file.src_uri)
    for number in markdown.loose_lists(text):
        _log.warning("%s:%d: a list needs an empty line before it", path, number)
    here = posixpath.dirname(page.file.src_uri)

    def moved(target: str) -> str:
        return posixpath.relpath(uri_of(markdown.resolved(path, target)), here or ".")

    whole = generated.expanded(markdown.relinked(text, moved))
    return "\n".join(_MARKED.sub(r"\1", line) for line in whole.splitlines())
