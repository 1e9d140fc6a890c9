"""Metadata of a library: JSON in an ELF section, which `mallorn_runtime` reads before loading."""

import json
import platform
from collections.abc import Mapping, Sequence
from hashlib import file_digest
from pathlib import Path
from typing import Any

import onnx
from tvm.target.codegen import llvm_get_cpu_features

from mallorn.graphc.export.cpu_features import ARCHITECTURES, FLAGS
from mallorn.graphc.export.export_checks import Spec
from mallorn.graphc.onnx.read_with_weights_on_disk import list_weight_files

FORMAT = 1
SECTION = ".mallorn"
LINE_CHARS = 100
# Features that compiled code may use, as LLVM names them (ADR 0076).
COMPILED_FEATURES = (
    "sse4.2", "avx", "avx2", "fma", "f16c",
    "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "avx512bf16", "avx512fp16",
    "amx-tile", "amx-int8", "amx-bf16", "avxvnni", "avx512cd", "avx512vbmi",
    "ssse3", "sse4.1", "popcnt", "lzcnt", "bmi", "bmi2",
    "neon", "dotprod", "fullfp16", "fp16fml", "i8mm", "bf16", "sve", "sve2",
)  # fmt: skip


def required_cpu_features(target: Any) -> list[str]:
    """Return the features that code for the target or its host needs, as the kernel names them."""
    cpu = target if target.kind.name == "llvm" else target.host
    if cpu is None or cpu.kind.name != "llvm":
        return []
    features = {str(feature) for feature in llvm_get_cpu_features(cpu)}
    flags = FLAGS.get(target_architecture(target), {})
    return [flags[name] for name in COMPILED_FEATURES if name in features & flags.keys()]


def target_architecture(target: Any) -> str:
    """Return the target's or this machine's CPU as `platform.machine` names it."""
    cpu = target if target.kind.name == "llvm" else target.host
    triple = "" if cpu is None else str(cpu.attrs.get("mtriple", ""))
    architecture = triple.partition("-")[0] or platform.machine()
    return ARCHITECTURES.get(architecture, architecture)


def describe_library(
    target: Any, manifest: Any, inputs: Sequence[Spec], outputs: Sequence[Spec], files: Mapping[str, Path]
) -> Spec:
    """Return a library's metadata. Spec of `manifest`, a manifest.json, may be missing.

    The SHA-256 of `files` are kept by their names, and those of files with the weights of
    `source` or, if it is missing, of `model`: `source` is the ONNX file that `model` is a part
    of. By these and by `source_shapes`, its free sizes as they were tuned, which may be constants
    in a region, `mallorn_runtime.onnxruntime` knows to which sessions the library belongs.

    For a range of shapes, names of free dimensions replace sizes in the inputs' shapes.
    """
    dynamic = manifest.get("dynamic") or {"inputs": {}, "ranges": {}}
    source = files.get("source", files["model"])
    weights = [source.with_name(name) for name in list_weight_files(source)]
    workload_fields = ("task", "workload", "weight", "latency_us")
    return {
        "format": FORMAT,
        "inputs": [_describe(spec, dynamic["inputs"].get(spec["name"])) for spec in inputs],
        "outputs": [_describe(spec) for spec in outputs],
        "ranges": dict(dynamic["ranges"]),
        "input_ranges": manifest.get("input_ranges", {}),
        "target": json.loads(str(target)),
        "cpu_features": required_cpu_features(target),
        "threads": int(target.attrs.get("num-cores", 0)),
        "versions": manifest.get("versions", {}),
        "job": manifest.get("job", ""),
        "model": manifest.get("model", ""),
        "workloads": [
            {field: row.get(field) for field in workload_fields} for row in manifest.get("workloads", [])
        ],
        "digests": {name: _digest_of(path) for name, path in files.items()},
        "weights": {path.name: _digest_of(path) for path in weights},
        "source_shapes": {} if manifest.get("dynamic") else manifest.get("input_shapes", {}),
    }


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _describe(spec: Spec, shape: Sequence[int | str] | None = None) -> Spec:
    return {"name": spec["name"], "dtype": spec["dtype"], "shape": list(shape or spec["shape"])}


def output_specs(model: Any, manifest: Any) -> Sequence[Spec]:
    """Return the manifest's outputs; for a range, those that the ONNX model declares, with
    names of free sizes. `model` is not used if the manifest has outputs and no range."""
    outputs = manifest.get("outputs")
    if outputs and not manifest.get("dynamic"):
        return list(outputs)
    specs = []
    for value in model.graph.output:
        kind = value.type.tensor_type
        shape = [
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in kind.shape.dim
        ]
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
        specs.append({"name": value.name, "dtype": dtype, "shape": shape})
    return specs


def metadata_source(metadata: Spec) -> str:
    """Return a C source, also valid as C++, that puts the metadata into a section."""
    text = json.dumps(metadata, separators=(",", ":"))
    lines = []
    for start in range(0, len(text), LINE_CHARS):
        line = text[start : start + LINE_CHARS]
        for char in ("\\", '"', "?"):  # a `?` could be part of a trigraph
            line = line.replace(char, f"\\{char}")
        lines.append(f'"{line}"')
    literal = "\n".join(lines)
    return f"""#if defined(__ELF__)
static const char mallorn_metadata[] __attribute__((used, section("{SECTION}"))) =
{literal};
#endif
"""
