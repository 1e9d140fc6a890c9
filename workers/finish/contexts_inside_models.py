"""Measuring contexts of times inside a whole model: such times compare within one model alone."""

import json
from hashlib import sha256
from typing import Final

from workers.process.leased_stage import StageContext

KEY_CHARS: Final = 16


def timing_inside(stage: StageContext, programs: int = 0) -> dict[str, object]:
    """Return how kernels are timed inside the job's model, beside so many other programs.

    A hash of its bytes, shapes and recipe names the model: what runs before a kernel decides what the kernel
    finds in the caches. The owner is part of a private job's hash, which tells others nothing of the model.
    """
    job, options = stage.job, stage.options
    owner = job.owner if options.is_private else ""
    named = job.model_id, owner, options.input_shapes, stage.graph.recipe.model_dump(mode="json")
    digest = sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
    return options.timing_inside(digest[:KEY_CHARS], programs)
