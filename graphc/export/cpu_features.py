"""Names of CPU features: LLVM's, and the kernel's in /proc/cpuinfo."""

# Other spellings of architectures, and those of `uname -m`.
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
# LLVM feature that kernels may use -> the kernel's flag. Other features are for tuning or systems.
X86 = {
    "sse": "sse", "sse2": "sse2", "sse3": "pni", "ssse3": "ssse3", "sse4.1": "sse4_1", "sse4.2": "sse4_2",
    "sse4a": "sse4a", "avx": "avx", "avx2": "avx2", "fma": "fma", "fma4": "fma4", "f16c": "f16c",
    "bmi": "bmi1", "bmi2": "bmi2", "lzcnt": "abm", "popcnt": "popcnt", "movbe": "movbe", "adx": "adx",
    "cmov": "cmov", "xop": "xop", "cx16": "cx16",
    "aes": "aes", "vaes": "vaes", "pclmul": "pclmulqdq", "gfni": "gfni",
    "vpclmulqdq": "vpclmulqdq", "sha": "sha_ni", "avxvnni": "avx_vnni", "avxvnniint8": "avx_vnni_int8",
    "avxifma": "avx_ifma", "avxneconvert": "avx_ne_convert", "avx512f": "avx512f", "avx512bw": "avx512bw",
    "avx512cd": "avx512cd", "avx512dq": "avx512dq", "avx512vl": "avx512vl", "avx512vnni": "avx512_vnni",
    "avx512fp16": "avx512_fp16", "avx512ifma": "avx512ifma", "avx512bf16": "avx512_bf16",
    "avx512vbmi": "avx512vbmi", "avx512vbmi2": "avx512_vbmi2", "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq", "avx512vp2intersect": "avx512_vp2intersect",
    "amx-tile": "amx_tile", "amx-int8": "amx_int8", "amx-bf16": "amx_bf16", "amx-fp16": "amx_fp16",
}  # fmt: skip
ARM = {
    "neon": "asimd", "fullfp16": "asimdhp", "dotprod": "asimddp", "lse": "atomics", "bf16": "bf16",
    "i8mm": "i8mm", "fp16fml": "asimdfhm", "sve": "sve", "sve2": "sve2", "sme": "sme",
}  # fmt: skip
# By architecture: the flags, and the field of /proc/cpuinfo that lists them.
FLAGS = {"x86_64": X86, "aarch64": ARM}
FIELDS = {"x86_64": "flags", "aarch64": "Features"}
