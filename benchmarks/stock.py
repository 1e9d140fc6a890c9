"""The stock arm of a comparison: MetaSchedule on the same module, in a separate process.

python -m benchmarks.stock MODEL WORK_DIR --target JSON --recipe JSON --trials N [--batch 64] [--seed 0]

Prints one JSON object: seconds, profile, trials and failures. The caller sets TVM_NUM_THREADS.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from tvm.s_tir.meta_schedule import Profiler
from tvm.s_tir.meta_schedule.relax_integration import tune_relax
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, LocalRunner

from mallorn.core.job_options import EvaluatorOptions
from mallorn.core.values.graph_report import StoredRecipe
from mallorn.core.values.manifest import RECORDS
from mallorn.workers.tvm.network.graph_recipes import recipe_steps
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from mallorn.workers.tvm.network.run_recipe_passes import run_steps
from mallorn.workers.tvm.programs.parsed_program_cache import parse_tvm_target

FAILED_SEC = 1e9  # times above are failures: stock writes 1e10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("work_dir", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--recipe", type=StoredRecipe.model_validate_json, required=True)
    parser.add_argument("--trials", type=int, required=True)
    parser.add_argument("--batch", type=int, default=64, help="trials that a task gets at a time")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    target = parse_tvm_target(args.target)
    started = time.monotonic()
    mod, _ = run_steps(load_network(args.model).mod, recipe_steps(args.recipe)["before"], target)
    with Profiler() as profiler:
        tune_relax(
            mod,
            {},
            target,
            str(args.work_dir),
            max_trials_global=args.trials,
            num_trials_per_iter=args.batch,
            runner=LocalRunner(
                evaluator_config=EvaluatorConfig(**EvaluatorOptions().model_dump(exclude={"flush_l2"}))
            ),
            seed=args.seed + 1,  # stock does not accept 0
        )
    seconds = time.monotonic() - started
    run_secs = [json.loads(line)[1][1] for line in (args.work_dir / RECORDS).read_text().splitlines()]
    failed = sum(min(times) >= FAILED_SEC for times in run_secs)
    profile = {name: value.value for name, value in profiler.get().items()}
    result = {"seconds": seconds, "trials": len(run_secs), "failures": failed, "profile_sec": profile}
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
