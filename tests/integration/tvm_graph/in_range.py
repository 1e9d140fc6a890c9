"""A model for a range of shapes, with rules and schedules as a finish exports them."""

import json
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.manifest import MANIFEST, Manifest
from mallorn.workers.finish.shape_dispatch import add_dispatch_rules
from mallorn.workers.interfaces.model_compiler import Extraction
from mallorn.workers.tvm.network.extract_tasks_of_range import extract_range
from tests.integration.tvm_graph.conftest import Example


class InRange(Example):
    """An example whose free dimensions lie within these bounds."""

    bounds: ClassVar[dict[str, list[int]]]

    @cached_property
    def extracted(self) -> Extraction:
        return extract_range(self.path, self.target, self.recipe, {}, self.bounds)

    @cached_property
    def dynamic(self) -> Dynamic:
        assert self.graph.dynamic is not None
        return add_dispatch_rules(self.graph.dynamic, {t.name: t.flops for t in self.tasks})

    @cached_property
    def schedules(self) -> str:
        directory = self.write("schedules", self.records)
        manifest = Manifest(
            target=json.loads(self.target),
            recipe=self.recipe,
            input_shapes=self.dynamic.shapes(self.dynamic.largest),
            inputs=self.graph.inputs,
            input_ranges=self.graph.input_ranges,
            dynamic=self.dynamic,
        )
        Path(directory, MANIFEST).write_text(manifest.model_dump_json())
        return directory
