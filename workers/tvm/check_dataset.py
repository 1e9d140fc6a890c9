"""Reads an exported dataset for a process that parses no stranger's files, and computes its names again.

Rows of workloads are described anew from their programs. A program or trace that is not allowed, or whose key is
another's, is left out.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import tvm

from db.dataset.dataset_reader import DatasetReader, open_parcel
from db.dataset.schema import SKETCH_TABLE, TABLES, WORKLOAD_TABLE, Row
from mallorn.core.values.candidate import ChoiceKind, unpack_choices
from workers.interfaces.model_compiler import DatasetRows, OpenedDataset
from workers.interfaces.tensor_arguments import pack_arguments
from workers.tvm.allowed_programs import check_trace
from workers.tvm.extract_tasks import describe
from workers.tvm.parsed_program_cache import parse_module
from workers.tvm.sketches import sketch_key
from workers.tvm.tuning_database import BROKEN, words_of
from workers.tvm.workload_key import canonical
