"""Makes PyTorch's Linux wheel importable without NVIDIA's four gigabytes of libraries, for tests on the CPU.

python cudaless.py PYTHON

The wheel links against CUDA's libraries, though nothing calls them where there is no GPU. This reads what the wheel's
own libraries want from libraries that nobody has, and builds one small library with all of it: each function answers
`cudaErrorNoDevice`. It stands in torch's folder under each missing name. Needs readelf, nm and a C compiler.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

NO_DEVICE = 100
"""`cudaErrorNoDevice` of the CUDA runtime API."""

LOADED_LATER = "libcaffe2_nvrtc.so"
"""Opened only when a kernel is compiled."""

SOURCE = f"""
static long none(void) {{ return {NO_DEVICE}; }}
static long zero(void) {{ return 0; }}
static void *handle;
static void **registered(void) {{ return &handle; }}
static int count(int *devices) {{ if (devices) *devices = 0; return {NO_DEVICE}; }}
static const char *word(int error) {{ return "there is no CUDA here"; }}
"""
ANSWERS = {
    "cudaGetDeviceCount": "count",
    "cudaGetErrorString": "word",
    "cudaGetErrorName": "word",
    "cudaGetLastError": "zero",
    "cudaPeekAtLastError": "zero",
    "__cudaRegisterFatBinary": "registered",
}
"""What is called at import, and what an error is told with; the rest answers `none`, and CUDA's registration `zero`."""


def output(*command: str | Path) -> list[str]:
    """The lines that a tool prints."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def wanted(library: Path) -> Iterator[str]:
    """The libraries that this one names as needed."""
    for line in output("readelf", "-dW", library):
        if found := re.search(r"\(NEEDED\).*\[(.+)\]", line):
            yield found[1]


def opened(name: str) -> ctypes.CDLL | None:
    """The system's library of that name, if it has it."""
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def versions_of(library: Path, missing: set[str]) -> set[str]:
    """The versions of symbols that this library wants from the missing ones."""
    found, inside = set(), False
    for line in output("readelf", "-VW", library):
        if file := re.search(r"File: (\S+)", line):
            inside = file[1] in missing
        elif inside and (version := re.search(r"Name: (\S+)", line)):
            found.add(version[1])
    return found


def symbols(library: Path, kind: str) -> set[str]:
    """Dynamic symbols, as `name` or `name@version`; weak ones may stay undefined, so they are left out."""
    lines = (line.split() for line in output("nm", "-D", kind, library))
    return {line[-1].replace("@@", "@") for line in lines if line[-2] not in ("w", "v")}


def lacking(libraries: list[Path], named: dict[str, ctypes.CDLL | None]) -> dict[str, set[str]]:
    """By version (empty: none) the symbols that neither torch nor the system defines."""
    found: dict[str, set[str]] = defaultdict(set)
    missing = {name for name, library in named.items() if library is None}
    system = [library for library in named.values() if library is not None]
    known = {name for library in libraries for name in symbols(library, "--defined-only")}
    for library in libraries:
        versions = versions_of(library, missing)
        for symbol in symbols(library, "--undefined-only") - known:
            name, _, version = symbol.partition("@")
            python = name.startswith(("Py", "_Py"))
            if version in versions or not (version or python or any(hasattr(one, name) for one in system)):
                found[version].add(name)
    return found


def answer(name: str) -> str:
    """Which of the functions in SOURCE stands for this one."""
    return ANSWERS.get(name, "zero" if name.startswith("__cuda") else "none")


def build(target: Path, wants: dict[str, set[str]]) -> None:
    """Compile the library that has all of it."""
    names = sorted(set().union(*wants.values()))
    aliases = [f'extern long {name}() __attribute__((alias("{answer(name)}")));' for name in names]
    nodes = [f"{version} {{ global: {'; '.join(sorted(those))}; }};" for version, those in wants.items() if version]
    with tempfile.TemporaryDirectory() as folder:
        source, script = Path(folder, "none.c"), Path(folder, "versions")
        source.write_text(SOURCE + "\n".join(aliases))
        script.write_text("\n".join(nodes))
        flags = ["-w", "-fno-builtin", "-shared", "-fPIC", f"-Wl,--version-script={script}"]
        subprocess.run(["cc", *flags, "-o", str(target), str(source)], check=True)


def main(python: str) -> None:
    """Put it in that interpreter's torch."""
    place = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    folder = Path(output(python, "-c", place)[0], "lib")
    libraries = [path for path in sorted(folder.glob("lib*.so*")) if path.name != LOADED_LATER]
    asked = {name for library in libraries for name in wanted(library)} - {path.name for path in libraries}
    named = {name: opened(name) for name in sorted(asked)}
    missing = [name for name, library in named.items() if library is None]
    if not missing:
        return
    wants = lacking(libraries, named)
    stand_in = folder / "libnocuda.so"
    build(stand_in, wants)
    for name in missing:
        (folder / name).symlink_to(stand_in.name)
    sys.stdout.write(f"{len(missing)} libraries stood in for, {sum(map(len, wants.values()))} functions\n")


if __name__ == "__main__":
    main(sys.argv[1])
