"""The recipe without a network: packages made here, and a folder in their place."""

from __future__ import annotations

import dataclasses
import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

from agentkv.errors import UsageError
from agentkv.io.hashing import file_sha256
from tests.benchmarks.documents import recipe
from tests.benchmarks.errors import PackageUnavailable, WrongPackage

ROOT = "usr/share/doc/tiny-doc"


def made(folder: Path, version: str = "1:2.0-1") -> Path:
    """A package of five files, one of them packed, one a link."""
    tree = folder / "tree"
    docs = tree / ROOT / "html"
    docs.mkdir(parents=True)
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN" / "control").write_text(
        f"Package: tiny-doc\nVersion: {version}\nArchitecture: all\nMaintainer: N <n@example.org>\nDescription: tiny\n"
    )
    (docs / "a.html").write_text("<html><body><p>one</p></body></html>")
    (docs / "release.html").write_text("<html><body><p>news</p></body></html>")
    (docs / "link.html").symlink_to("a.html")
    (tree / ROOT / "b.rst.gz").write_bytes(gzip.compress(b"two\n"))
    (tree / ROOT / "c.rst.txt").write_text("three\n")
    file = folder / f"tiny-doc_{version.replace(':', '%3a')}_all.deb"
    subprocess.run(["dpkg-deb", "--build", str(tree), str(file)], check=True, capture_output=True)
    return file


def package(file: Path) -> recipe.Package:
    picks = ("html/*.html", "*.rst.gz", "*.rst.txt")
    size = file.stat().st_size
    return recipe.Package("tiny-doc", "1:2.0-1", file_sha256(file), size, ROOT, picks, ("html/release*",))


needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is Debian's")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with the package downloaded already."""
    home = tmp_path / "work"
    (home / "packages").mkdir(parents=True)
    return home


@needs_dpkg
class TestPackages:
    @pytest.fixture
    def tiny(self, tmp_path: Path, work: Path) -> recipe.Package:
        file = made(tmp_path)
        shutil.copy(file, work / "packages")
        return package(file)

    def test_chosen_files_are_laid_out_unpacked_and_called_by_package(self, tiny: recipe.Package, work: Path) -> None:
        laid = recipe.lay(work, [tiny])
        assert list(laid.documents) == ["tiny-doc/b.rst", "tiny-doc/c.rst", "tiny-doc/html/a.html"]
        assert (laid.folder / "tiny-doc/b.rst").read_bytes() == b"two\n"
        described = {"name": "tiny-doc", "version": "1:2.0-1", "sha256": tiny.sha256, "pinned": True}
        assert laid.packages == (described,)
        assert sorted(path.name for path in work.iterdir()) == ["documents", "documents.json", "packages"]

    def test_a_second_time_nothing_is_fetched_and_the_same_comes_out(self, tiny: recipe.Package, work: Path) -> None:
        before = recipe.lay(work, [tiny])
        shutil.rmtree(work / "packages")
        assert recipe.lay(work, [tiny]) == before

    def test_a_document_that_was_touched_is_refused(self, tiny: recipe.Package, work: Path) -> None:
        laid = recipe.lay(work, [tiny])
        (laid.folder / "tiny-doc/b.rst").write_bytes(b"TWO\n")
        with pytest.raises(UsageError, match="not as it was laid out"):
            recipe.lay(work, [tiny])

    def test_other_settings_are_refused(self, tiny: recipe.Package, work: Path) -> None:
        recipe.lay(work, [tiny])
        with pytest.raises(UsageError, match="made otherwise"):
            recipe.lay(work, [tiny], settings={"needles": 3})

    def test_another_file_than_the_pinned_one_is_not_taken(
        self, tiny: recipe.Package, work: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = dataclasses.replace(tiny, sha256="0" * 64)
        found = next((work / "packages").iterdir())

        def download(_package: recipe.Package, folder: Path, _any_version: bool) -> Path:
            return Path(shutil.copy(found, folder))

        monkeypatch.setattr(recipe, "_download", download)
        with pytest.raises(WrongPackage, match="--any-version"):
            recipe.lay(work, [other])
        assert not (work / "documents.json").exists()
        laid = recipe.lay(work, [other], any_version=True)
        assert [package["pinned"] for package in laid.packages] == [False]

    def test_a_package_without_the_folder_is_reported(self, tiny: recipe.Package, work: Path) -> None:
        with pytest.raises(PackageUnavailable, match="no folder usr/share/other"):
            recipe.lay(work, [dataclasses.replace(tiny, root="usr/share/other")])


def test_where_there_is_no_apt_it_is_reported(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(work))
    with pytest.raises(PackageUnavailable, match=r"no `apt-get` here.*--folder") as raised:
        recipe.lay(work, recipe.SMALL)
    assert raised.value.exit_code == 66


def test_a_star_stays_within_one_folder() -> None:
    assert recipe._matches("html/a.html", "html/*.html")
    assert not recipe._matches("html/deep/a.html", "html/*.html")


def test_a_folder_of_ones_own_is_copied_and_never_changed(folder: Path, tmp_path: Path) -> None:
    def upper(documents: dict[str, bytes]) -> dict[str, bytes]:
        return {path: data.upper() for path, data in documents.items()}

    before = (folder / "b.rst").read_bytes()
    laid = recipe.lay(tmp_path / "work", source=folder, change=upper)
    assert list(laid.documents) == ["manual/a.html", "manual/b.rst", "manual/deep/c.txt"]
    assert (laid.folder / "manual/b.rst").read_bytes() == before.upper()
    assert (folder / "b.rst").read_bytes() == before
    assert laid.packages[0]["pinned"] is False


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UsageError, match="no document"):
        recipe.lay(tmp_path / "work", source=tmp_path / "nothing")
