"""Compile the execution provider for onnxruntime: python build_provider.py OUTPUT.so [COMPILER_OPTION ...]

It needs a C++ compiler and the packages apache-tvm and apache-tvm-ffi, against which it is linked. In the
wheel it finds both libraries by their places: libtvm_runtime.so beside it, libtvm_ffi.so in tvm_ffi/lib.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE / "src" / "onnxruntime_provider.cc"
COMPILERS = ("g++", "clang++", "c++")
LIBRARIES = ("-Wl,--no-as-needed", "-ltvm_runtime", "-ltvm_ffi", "-ldl")
OPTIONS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")


def find_compiler() -> str | None:
    """Return the C++ compiler of CXX or PATH, or None if there is none."""
    names = [name for name in (os.environ.get("CXX"), *COMPILERS) if name]
    return next(filter(None, map(shutil.which, names)), None)


def compile_provider(output: Path, options: list[str]) -> None:
    """Compile the provider. Raises SystemExit: with code 2 if there is no compiler."""
    compiler = find_compiler()
    if compiler is None:
        sys.stderr.write("no C++ compiler (apt-get install g++): no provider for onnxruntime\n")
        raise SystemExit(2)
    site = Path(str(distribution("apache-tvm-ffi").locate_file("tvm_ffi")))
    tvm = Path(str(distribution("apache-tvm").locate_file("tvm")))
    version = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]["version"]
    includes = [f"-I{HERE / 'include'}", f"-isystem{site / 'include'}", f'-DMALLORN_VERSION="{version}"']
    links = [f"-L{tvm / 'lib'}", f"-L{site / 'lib'}", *LIBRARIES]
    places = "-Wl,-rpath,$ORIGIN:$ORIGIN/../../tvm_ffi/lib"
    words = [compiler, *OPTIONS, *options, *includes, str(SOURCE), "-o", str(output), *links, places]
    if (code := subprocess.run(words, check=False).returncode) != 0:
        raise SystemExit(f"{compiler} ended with {code}")


if __name__ == "__main__":
    compile_provider(Path(sys.argv[1]), sys.argv[2:])
