"""The site of docs/: Mermaid is the pinned one, or diagrams stay as their text."""

import hashlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import docs_hooks
import pytest

from local import docs, python_env, steps
from local.tools import LocalServerError

SCRIPT = b"export default 1;"


def test_another_script_is_not_kept(tmp_path: Path, monkeypatch: Any) -> None:
    """By its hash; the pinned one is written down whole."""
    path = tmp_path / "mermaid.js"
    with pytest.raises(LocalServerError, match="another SHA-256"):
        docs.keep(SCRIPT, path)
    assert not path.exists()
    monkeypatch.setattr(docs, "MERMAID_SHA256", hashlib.sha256(SCRIPT).hexdigest())
    docs.keep(SCRIPT, path)
    assert path.read_bytes() == SCRIPT


def test_the_script_is_found_in_npms_archive(tmp_path: Path) -> None:
    """Among other files."""
    with tarfile.open(tmp_path / "m.tgz", "w:gz") as archive:
        for name, data in (("package/package.json", b"{}"), (docs.MEMBER, SCRIPT)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    assert docs.script_in(tmp_path / "m.tgz") == SCRIPT


def a_site(folder: Path) -> Any:
    """What MkDocs hands to its hooks, as far as ours look."""
    return SimpleNamespace(mdx_configs={}, extra_javascript=[], site_dir=str(folder))


def test_diagrams_are_drawn_by_our_own_script(tmp_path: Path, monkeypatch: Any) -> None:
    """It is copied into the site, and the theme fetches none."""
    fences = ModuleType("pymdownx.superfences")
    fences.fence_code_format = object()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pymdownx.superfences", fences)
    script, site = tmp_path / "m.js", a_site(tmp_path / "site")
    script.write_bytes(SCRIPT)
    monkeypatch.setenv(docs_hooks.VARIABLE, str(script))
    assert docs_hooks.on_config(site) is site
    (fence,) = site.mdx_configs["pymdownx.superfences"]["custom_fences"]
    assert fence["name"] == "mermaid" and site.extra_javascript == [docs_hooks.SCRIPT]
    docs_hooks.on_post_build(site)
    assert (tmp_path / "site" / docs_hooks.SCRIPT).read_bytes() == SCRIPT


def test_without_the_script_diagrams_stay_as_their_text(tmp_path: Path, monkeypatch: Any) -> None:
    """No fence turns them into what the theme would fetch a script for."""
    monkeypatch.delenv(docs_hooks.VARIABLE, raising=False)
    site = a_site(tmp_path)
    docs_hooks.on_config(site)
    docs_hooks.on_post_build(site)
    assert not site.mdx_configs and not site.extra_javascript and not list(tmp_path.iterdir())


def test_other_words_are_refused(capsys: Any) -> None:
    """Before anything is installed."""
    assert docs.main(["sreve"]) == docs.main(["build", "serve"]) == 2
    assert "build or serve" in capsys.readouterr().err


def test_the_lock_has_what_builds_the_site() -> None:
    """Each with its hashes; and nothing of the service's."""
    text = python_env.DOCS_LOCK.read_text()
    assert "mkdocs-material==" in text and "mkdocstrings-python==" in text
    assert "numba" not in text and text.count("--hash=sha256:") > text.count("==")


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["build"], 0, f"{docs.SHOW}\n"),
        ([], 0, f"{docs.SHOW}\n"),
        (["build"], 1, ""),
        (["serve"], 0, ""),
    ],
)
def test_a_site_that_was_built_can_be_shown(
    words: list[str], code: int, expected: str, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line says how, if there is one to show."""
    monkeypatch.setattr(steps, "run", lambda _: 0)
    done = SimpleNamespace(returncode=code)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert docs.main(words) == code
    assert capsys.readouterr().err == expected
