"""Networks to measure on, as ONNX files with seeded random weights.

`development` may be looked at while the product is changed. `held_out` is built and timed once, at the end:
no schedule, rule or constant of the product is chosen by it.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples"))  # where the example networks' builder lies
