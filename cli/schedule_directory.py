"""A directory of schedules, and its model, for commands that need no service."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Self

from mallorn.cli.run_service_part import require_packages
from mallorn.client.model_upload import ModelUpload
from mallorn.client.onnx_export import as_onnx
from mallorn.core.errors import InvalidRequest, NotFound
from mallorn.core.targets import Target, parse_target
from mallorn.core.values.manifest import DATABASE, MANIFEST, RECORDS, Manifest, ScheduleSet, read_manifest
from mallorn.stack.supervised_process import search_path

if TYPE_CHECKING:
    from mallorn.workers.whole_model.compiled_model import WholeModel

# Targets by the names of `mallorn compile --for`: what every CPU of that architecture runs.
GENERIC: Final[dict[str, dict[str, object]]] = {
    "aarch64": {"kind": "llvm", "mtriple": "aarch64-linux-gnu"},
    "x86-64": {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64"},
}


@dataclass(frozen=True)
class ScheduleDirectory:
    """A directory of schedules: its target, its manifest and the chosen set."""

    directory: Path
    target: Target
    manifest: Manifest
    schedule_set: ScheduleSet = ScheduleSet.ALONE
    is_for_another: bool = False  # whether `target` replaces the one that the schedules are for

    def file(self, name: str) -> Path:
        """Return the path of this set's file for TVM's database file `name`."""
        return self.directory / self.schedule_set.file(name)

    def create_database_folder(self, scratch: Path) -> Path:
        """Return a folder with this set's database under TVM's usual file names."""
        if self.schedule_set is ScheduleSet.ALONE and not self.is_for_another:
            return self.directory.absolute()
        folder = scratch / self.schedule_set
        folder.mkdir(exist_ok=True)
        for name in DATABASE:
            shutil.copyfile(self.file(name), folder / name)
        if self.is_for_another:
            records = []
            for line in self.file(RECORDS).read_text().splitlines():
                # Tensor instructions are those of the schedules' own CPU. Torn lines are left out, too.
                with suppress(ValueError, LookupError, TypeError):
                    workload, (trace, seconds, _, arguments) = json.loads(line)
                    if '"Tensorize"' not in line:
                        records.append(json.dumps([workload, [trace, seconds, self.target.attrs, arguments]]))
            (folder / RECORDS).write_text("".join(f"{record}\n" for record in records))
        return folder

    def for_target(self, text: str) -> Self:
        """Return the same schedules for another CPU: `aarch64`, `x86-64` or a target."""
        attrs = GENERIC.get(text)
        cores = {"num-cores": self.target.num_cores}
        target = parse_target(text if attrs is None else attrs | cores)
        if not (self.target.runs_on_cores and target.runs_on_cores):
            message = f"schedules for {self.target} cannot be used for {target}"
            raise InvalidRequest(message, hint="mallorn tune MODEL --target TARGET --out OTHER_DIR")
        return replace(self, target=target, is_for_another=target != self.target)


def read_schedule_directory(
    directory: Path, target: str | None, schedule_set: ScheduleSet = ScheduleSet.ALONE
) -> ScheduleDirectory:
    """Read a directory's manifest; one that stock TVM wrote has none and needs `target`.

    Raises NotFound if the directory is missing, InvalidRequest if it is for another target,
    its manifest is invalid or it lacks the set.
    """
    if not directory.is_dir():
        raise NotFound(f"there is no directory {str(directory)!r}", hint="mallorn tune MODEL --out DIR")
    requested = None
    if target is not None:
        from mallorn.workers.device.target_support import resolve_target

        requested = resolve_target(target)
    if (directory / MANIFEST).is_file():
        manifest = read_manifest(directory / MANIFEST)
    elif requested is None:
        message = f"{directory} has no {MANIFEST}, so the target is unknown"
        raise InvalidRequest(message, hint="add --target local, or the target as JSON")
    else:
        from mallorn.workers.tvm.network.graph_recipes import PLAIN, recipe_for

        recipe = recipe_for(PLAIN.name, requested)
        manifest = Manifest(target=requested.text, recipe=recipe)
    exported = ScheduleDirectory(directory, parse_target(manifest.target), manifest, schedule_set)
    if requested not in (None, exported.target):
        raise InvalidRequest(
            f"the schedules in {directory} are for target {exported.target}, not for {requested}",
            hint="leave --target out, or   mallorn tune MODEL --target TARGET --out OTHER_DIR",
        )
    if schedule_set is not ScheduleSet.ALONE and not all(exported.file(name).is_file() for name in DATABASE):
        raise InvalidRequest(
            f"{directory} has no schedules for --set {schedule_set}: its job ran without --contention, or "
            "the ordinary schedules were the fastest on a busy host too",
            hint="leave --set out, or   mallorn tune MODEL --contention --out OTHER_DIR",
        )
    return exported


@contextmanager
def local_model(
    model: Path, exported: ScheduleDirectory, threads: int | None = None, inputs: Path | None = None
) -> "Iterator[WholeModel]":
    """Yield the model as it was tuned; remove its processes and files on exit.

    The processes are sandboxed, because schedules may be untrusted and become machine code.
    Engines run on `threads` threads, by default as many as the target has cores. `inputs`
    are a user's for checks. Raises InvalidRequest if there is no such file, or for
    schedules of a range of shapes.
    """
    if inputs is not None and exported.manifest.dynamic is not None:
        message = "--inputs have fixed shapes, and these schedules are for a range"
        raise InvalidRequest(message, hint="without --inputs")
    if inputs is not None and not inputs.is_file():
        raise InvalidRequest(f"there is no file {inputs}", hint=f"ls {inputs.parent}")
    with require_packages("worker", "onnx", "tvm"):
        from mallorn.workers.interfaces.model_compiler import REGION, ModelCompiler
        from mallorn.workers.sandbox.landlock import READ
        from mallorn.workers.whole_model.compiled_model import WholeModel
    count = threads or exported.target.num_cores
    search_env, manifest = {"PATH": search_path()}, exported.manifest
    with as_onnx(model) as file, TemporaryDirectory(prefix="mallorn-") as parent:
        # Each process writes to its own folder; none may write to their parent folder.
        room, weights = Path(parent), ModelUpload.of(file).weights
        (folder := room / "graphs").mkdir()
        model_files = [file.absolute(), *(file.absolute().parent / name for name in weights)]
        model_files += [] if inputs is None else [inputs.absolute()]
        schedules = [(exported.directory / name).absolute() for name in (MANIFEST, *DATABASE)]
        readable = tuple((str(path), READ) for path in (room, *model_files, *schedules))
        env = {"TVM_NUM_THREADS": str(count), **search_env}
        with ModelCompiler(env=env, room=folder, others=readable) as graphs:
            path, source, region = file.absolute(), None, manifest.region
            if region is not None:
                source, path = path, folder / REGION
                graphs.cut_region(str(source), manifest.input_shapes, region, str(path))
            yield WholeModel(
                path=path,
                source=source,
                source_shapes=manifest.input_shapes,
                samples=None if inputs is None else inputs.absolute(),
                target=exported.target,
                recipe=manifest.recipe,
                input_shapes={} if region else manifest.input_shapes,
                input_ranges=manifest.input_ranges,
                dynamic=manifest.dynamic,
                graphs=graphs,
                folder=folder,
                threads=count,
                env=search_env,
                room=room,
                reads=model_files,
            )


def can_run_onnxruntime(exported: ScheduleDirectory) -> bool:
    """Return whether onnxruntime is installed and can run the target, which is a CPU."""
    return exported.target.runs_on_cores and find_spec("onnxruntime") is not None
