"""CUDA's compilers and libraries on a host that builds."""

from collections.abc import Iterator, Mapping

from mallorn.kinds.cuda.compiler import compile_cuda
from mallorn.kinds.cuda.graph.cuda_toolkit import find_nvcc
from mallorn.workers.host.builder_kind import BuilderKind, Requirement


class CudaBuilder(BuilderKind):
    def missing_tools(self) -> str:
        return "; ".join(f"{tool} ({command})" for tool, command in compile_cuda.find_toolchain().missing)

    def tool_versions(self) -> Mapping[str, tuple[str, int]]:
        return {"nvcc": (nvcc, -1)} if (nvcc := find_nvcc()) else {}

    def requirements(self, has_device: bool) -> Iterator[Requirement]:
        """Only a GPU on this host needs the driver."""
        toolchain = compile_cuda.find_toolchain()
        for part, command in toolchain.missing:
            yield Requirement("cuda", False, f"this machine lacks {part}", command)
        if not toolchain.missing:
            words = f"{toolchain.nvcc} compiles kernels, {toolchain.cudart} runs them"
            yield Requirement("cuda", True, words)
        if toolchain.has_driver:
            yield Requirement("driver", True, "libcuda.so.1 loads")
        else:
            command = "apt-get install nvidia-driver-580   (in a container: docker run --gpus all)"
            words = "this machine lacks NVIDIA's driver libcuda.so.1"
            yield Requirement("driver", False, words, command, is_necessary=has_device)
