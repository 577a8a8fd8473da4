"""Compiles the hot path with mypyc.

    python -m compiling.build [--if-possible]

Does nothing when a build of these sources is there. `--if-possible`: without a C compiler, or when compiling fails,
says so in a line and exits 0; relume then runs the same sources uncompiled.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Final

from compiling.modules import MODULES, ROOT, built_into, digest, source, usable

GROUP: Final = "relume_hot"
CONFIGURATION: Final = """[mypy]
namespace_packages = True
explicit_package_bases = True
follow_imports = silent
[mypy-httptools.*,uvloop.*,pydantic.*,orjson.*]
ignore_missing_imports = True
"""
SETUP: Final = """
import sys
from setuptools import setup
from mypyc.build import mypycify
extensions = mypycify({arguments!r}, opt_level="2", debug_level="0", group_name={group!r})
setup(name="relume-hot", packages=[], ext_modules=extensions, script_args=["build_ext", "--build-lib", "out"])
"""


class CannotCompile(Exception):
    """Why there is no compiled form."""


def compiler() -> str | None:
    """The C compiler, where there is one with the headers of this Python."""
    named = (sysconfig.get_config_var("CC") or "cc").split()[0]
    found = shutil.which(named) or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    return found if (Path(sysconfig.get_path("include")) / "Python.h").is_file() else None


def build() -> Path:
    """The folder with the extensions of the present sources, built if need be. Raises CannotCompile."""
    ready = usable()
    if ready is not None:
        return ready
    if compiler() is None:
        raise CannotCompile("there is no C compiler with the headers of this Python")
    wanted = digest()
    with tempfile.TemporaryDirectory(prefix="relume-compiling-") as scratch:
        made = _compile(Path(scratch))
        if digest() != wanted:
            raise CannotCompile("a source was changed meanwhile; build again")
        return _keep(made, wanted)


def _compile(scratch: Path) -> list[Path]:
    for folder in ("events", "coldstart", "runtime"):
        shutil.copytree(ROOT / folder, scratch / folder, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    (scratch / "mypy.ini").write_text(CONFIGURATION, encoding="utf-8")
    files = [str(source(module).relative_to(ROOT)) for module in MODULES]
    arguments = ["--config-file=mypy.ini", "--cache-dir", str(ROOT / ".mypy_cache" / "compiled"), *files]
    (scratch / "setup.py").write_text(SETUP.format(arguments=arguments, group=GROUP), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-P", "setup.py"], cwd=scratch, capture_output=True, text=True, check=False,
        env={**_environment(), "PYTHONPATH": str(scratch)},
    )  # fmt: skip
    if done.returncode:
        raise CannotCompile("mypyc or the C compiler failed:\n" + (done.stdout + done.stderr)[-3000:])
    return sorted((scratch / "out").rglob("*.so"))


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | {"RELUME_PURE": "1"}


def _keep(made: list[Path], wanted: str) -> Path:
    """Move the extensions, named by their modules, to where they are looked for; the stamp comes last."""
    folder = built_into()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    out = next(parent for parent in made[0].parents if parent.name == "out")
    for path in made:
        shutil.copy2(path, folder / ".".join(path.relative_to(out).parts))
    (folder / "stamp.json").write_text(json.dumps({"digest": wanted}), encoding="utf-8")
    return folder


def switch_on() -> None:
    """Let this environment's Python find them: a `.pth` file that imports `compiling.finder`."""
    # Its name sorts behind that of the editable install, which puts the checkout on the path.
    pth = Path(sysconfig.get_path("purelib")) / "relume_compiled.pth"
    text = f"{ROOT}\nimport compiling.finder\n"
    if not pth.is_file() or pth.read_text(encoding="utf-8") != text:
        pth.write_text(text, encoding="utf-8")


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--if-possible", action="store_true", help="exit 0 when it cannot be compiled")
    options = parser.parse_args()
    began = time.monotonic()
    try:
        if usable() is None:
            print("Compiling the hot path: half a minute to two, once for each change of it.", flush=True)
            build()
            print(f"Compiled in {time.monotonic() - began:.0f} s.")
        switch_on()
    except CannotCompile as why:
        print(f"The hot path runs uncompiled, at about twice the CPU: {why}")
        return 0 if options.if_possible else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
