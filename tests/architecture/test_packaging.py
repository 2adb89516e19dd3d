"""What `pip install` of a wheel has: files beside the modules, the command, the fields of its metadata."""

import configparser
import importlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "rlframe"


def metadata():
    read = configparser.ConfigParser()
    read.read(ROOT / "setup.cfg", encoding="utf-8")
    return read


def data_files():
    """Returns the files of the package that are neither modules nor pages of the documentation."""
    found = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(PACKAGE).as_posix() for path in found if path.suffix not in (".py", ".pyc", ".md")}


def test_files_beside_modules_are_package_data_and_none_is_named_in_vain():
    patterns = metadata()["options.package_data"]["rlframe"].split()
    files = data_files()
    assert [name for name in files if not any(fnmatch(name, pattern) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not any(fnmatch(name, pattern) for name in files)] == []


def test_folders_with_modules_are_packages():
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_commands_lead_to_functions():
    lines = metadata()["options.entry_points"]["console_scripts"].strip().splitlines()
    for line in lines:
        module, _, name = line.partition("=")[2].strip().partition(":")
        assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.slow
def test_wheel_and_source_have_all_files_and_fields(tmp_path):
    pytest.importorskip("setuptools", minversion="77")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "constraints.txt",
                 "CHANGELOG.md", "CONTRIBUTING.md"):  # fmt: skip
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(PACKAGE, tmp_path / "rlframe", ignore=shutil.ignore_patterns("__pycache__"))
    build = "from setuptools import build_meta as b; b.build_wheel('.'); b.build_sdist('.')"
    subprocess.run([sys.executable, "-c", build], capture_output=True, check=True, cwd=tmp_path)
    (wheel,), (source,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    modules = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    wanted = {f"rlframe/{name}" for name in data_files() | modules}
    with zipfile.ZipFile(wheel) as archive:
        assert wanted - set(archive.namelist()) == set()
        assert [name for name in archive.namelist() if not name.startswith("rlframe")] == []
        (where,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        fields = HeaderParser().parsestr(archive.read(where).decode())
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields["Requires-Python"] == ">=3.10"
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert wanted | {"constraints.txt", "LICENSE", "CHANGELOG.md"} <= names
