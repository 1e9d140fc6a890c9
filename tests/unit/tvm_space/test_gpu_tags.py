"""Tags of CUDA GPUs, which are read without TVM, mean what they mean to TVM."""

import pytest
from tvm.target import Target, list_tags

from mallorn.core.errors import InvalidTarget
from mallorn.core.targets import parse_target
from mallorn.kinds.cuda.compute_capability import is_obsolete

TARGETS = {str(tag): Target(str(tag)) for tag in list_tags()}
GPUS = {tag: dict(target.attrs) for tag, target in TARGETS.items() if target.kind.name == "cuda"}
# TVM gives Thor the shared memory that a kernel may opt in to. Its kernels do not opt in.
GPUS["nvidia/jetson-agx-thor"]["max_shared_memory_per_block"] = 48 << 10
# The size of the L2 cache, which TVM states for a few, would make two targets of one GPU.
for attributes in GPUS.values():
    attributes.pop("l2_cache_size_bytes", None)


def test_a_tag_stands_for_the_attributes_that_it_has_in_tvm() -> None:
    usable = {tag: theirs for tag, theirs in GPUS.items() if not is_obsolete(theirs["arch"])}
    assert len(usable) > 30
    assert {tag: {"kind": "cuda", **theirs} for tag, theirs in usable.items()} == {
        tag: parse_target(tag).attrs for tag in usable
    }


def test_tags_of_gpus_that_nvcc_no_longer_compiles_for_are_refused_with_their_architecture() -> None:
    obsolete = {tag: theirs["arch"] for tag, theirs in GPUS.items() if is_obsolete(theirs["arch"])}
    assert len(obsolete) > 200
    for tag, arch in obsolete.items():
        with pytest.raises(InvalidTarget, match=f"no longer compiles for {arch},"):
            parse_target(tag)
