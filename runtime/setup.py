"""Put TVM's runtime library and licence, what C++ needs, and the provider for onnxruntime into the wheel."""

import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.errors import ExecError

HERE = Path(__file__).parent
TVM = distribution("apache-tvm")
# Files of TVM's wheel, and their places in the package.
FROM_TVM = {
    "tvm/lib/libtvm_runtime.so": "lib/libtvm_runtime.so",
    "tvm/LICENSE": "licenses/tvm/LICENSE",
    "tvm/NOTICE": "licenses/tvm/NOTICE",
}
PROVIDER = "lib/libmallorn_onnxruntime.so"
STATIC = ("-s", "-static-libstdc++", "-static-libgcc", "-Wl,--gc-sections,--exclude-libs,ALL")
NO_COMPILER = 2  # exit code of build_provider.py; then the wheel has no provider
OWN = ("include/mallorn_runtime.h", "cmake/mallorn_runtime-config.cmake")


class BuildWithRuntime(build_py):
    """Copy files that are not in the package's folder."""

    def run(self) -> None:
        super().run()
        package = Path(self.build_lib, "mallorn_runtime")
        sources = {package / name: HERE / name for name in OWN}
        sources |= {package / name: Path(str(TVM.locate_file(source))) for source, name in FROM_TVM.items()}
        for place, source in sources.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)
        if not self.editable_mode:
            output = str(package / PROVIDER)
            command = [sys.executable, str(HERE / "build_provider.py"), output, *STATIC]
            if subprocess.run(command).returncode not in (0, NO_COMPILER):
                raise ExecError("onnxruntime's provider does not compile")


class PlatformWheel(bdist_wheel):
    """Name the platforms of TVM's wheel; any Python can load the library."""

    def get_tag(self) -> tuple[str, str, str]:
        lines = (TVM.read_text("WHEEL") or "").splitlines()
        tags = [line.partition(":")[2].strip() for line in lines if line.startswith("Tag:")]
        return "py3", "none", ".".join(tag.rpartition("-")[2] for tag in tags)


class BinaryDistribution(Distribution):
    """A distribution for one platform."""

    def has_ext_modules(self) -> bool:
        return True


setup(cmdclass={"build_py": BuildWithRuntime, "bdist_wheel": PlatformWheel}, distclass=BinaryDistribution)
