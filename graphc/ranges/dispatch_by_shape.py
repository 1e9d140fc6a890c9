"""Build one library for a range of input shapes: functions tuned for some sizes, and `main`.

The sizes tuned for are called points. `main` applies the first rule that covers its inputs'
sizes, which names a point: inputs are padded with zeros to the point's sizes, and results
are cropped. Alternatively the point computes the first part of a dimension, as much as it
can, and `main` is called again for the rest. Larger sizes are an error.

A dimension whose range begins at 0 grows, as a cache does: points leave its size open.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict

import tvm
from tvm import relax, te, tirx

from mallorn.graphc.core.graph_rewriting import sizes_at
from mallorn.graphc.ranges import generalize_two_lengths

PLUS = " + "  # joins sizes where a dimension is their sum, as torch's exporter writes it
Sizes = Mapping[str, int]  # by the name of a dimension
Shapes = Mapping[str, Sequence[int]]  # by the name of an input
Dims = list[Any]  # per axis: a number, the name of a dimension, or a sum of names


class Rule(TypedDict):
    """A rule: inputs up to sizes `upto` run at tuned size `point`, at once or in parts."""

    upto: Sizes
    point: int
    first: str  # dimension whose first part the point takes; empty: it takes all


class Range(TypedDict):
    """A range of input shapes and the sizes tuned in it, as in a library's manifest."""

    ranges: Mapping[str, Sequence[int]]
    inputs: Mapping[str, Dims]
    points: Sequence[Sizes]
    rules: Sequence[Rule]


def named_dims(model: Any, shapes: Shapes) -> dict[str, Dims]:
    """Return each input's axes in calling order: sizes, or names of free dimensions."""
    weights = {tensor.name for tensor in model.graph.initializer}
    declared = {v.name: v.type.tensor_type.shape.dim for v in model.graph.input if v.name not in weights}
    return {
        name: list(shapes.get(name, [dim.dim_value or dim.dim_param or "?" for dim in dims]))
        for name, dims in declared.items()
    }


def shapes_at(inputs: Mapping[str, Dims], sizes: Sizes) -> dict[str, list[int]]:
    """Return the inputs' shapes when free dimensions have these sizes."""
    return {name: _sizes_at(dims, sizes) for name, dims in inputs.items()}


def dimension_names_of(dim: Any) -> list[str]:
    """Return the names of the free dimensions that add up to an axis; none if fixed."""
    return [name for name in dim.split(PLUS) if not name.isdigit()] if isinstance(dim, str) else []


def growing_dimensions(ranges: Mapping[str, Sequence[int]]) -> list[str]:
    """Return the free dimensions that grow from 0, such as a cache's length."""
    return [name for name, (low, _) in ranges.items() if low == 0]


def sample_sizes(ranges: Mapping[str, Sequence[int]], point: Sizes) -> list[dict[str, int]]:
    """Return sizes at which to import a tuned size's model: two if a dimension grows."""
    if not (open_ := growing_dimensions(ranges)):
        return [dict(point)]
    return [{**point, open_[0]: length} for length in generalize_two_lengths.LENGTHS]


def sizes_to_check(dynamic: Range) -> list[dict[str, int]]:
    """Return sizes to check results at: the least, and just above half each tuned size."""
    bounds = dynamic["ranges"]
    least = {name: low for name, (low, _) in bounds.items()}
    long = {name: bounds[name][1] // 2 + 1 for name in growing_dimensions(bounds)}
    result = [least]
    for point in dynamic["points"]:
        half = {name: size // 2 + 1 for name, size in point.items()}
        sizes = long | {name: max(bounds[name][0], size) for name, size in half.items()}
        if sizes not in result:
            result.append(sizes)
    return result


def express_by_dimensions(shapes: Sequence[Sequence[int]], sizes: Sequence[Sizes]) -> Dims:
    """Express each axis by free dimensions that fit all shapes; None if none does."""
    names = list(sizes[0])
    dims: Dims = []
    for lengths in zip(*shapes, strict=True):
        if len(set(lengths)) == 1:
            dims.append(lengths[0])
            continue
        sums = [f"{name}{PLUS}{addend}" for index, name in enumerate(names) for addend in names[:index]]
        excess = {name: lengths[0] - sizes[0][name] for name in names}
        offsets = [f"{name}{PLUS}{count}" for name, count in excess.items() if count > 0]
        matches = (
            dim
            for dim in (*names, *sums, *offsets)
            if [_size(dim, point) for point in sizes] == list(lengths)
        )
        dims.append(next(matches, None))
    return dims


def point_suffix(sizes: Sizes) -> str:
    """Return the suffix of the names of functions tuned for these sizes."""
    return "__" + "_".join(f"{_plain(name)}{size}" for name, size in sizes.items())


def join_points(mods: Sequence[Any], dynamic: Range) -> Any:
    """Join modules for several tuned sizes into one, with a `main` for the whole range."""
    points, inputs = dynamic["points"], list(dynamic["inputs"].values())
    open_ = growing_dimensions(dynamic["ranges"])
    parts = [_rename_functions(mod, point_suffix(point)) for mod, point in zip(mods, points, strict=True)]
    functions = {name: function for part in parts for name, function in part.items()}
    builder = relax.BlockBuilder(tvm.IRModule(functions))
    entries = [pair for mod, point in zip(mods, points, strict=True) for pair in _results(mod, point, open_)]
    sizes = [point for point, _ in entries]
    results = [
        express_by_dimensions(shapes, sizes)
        for shapes in zip(*(shapes for _, shapes in entries), strict=True)
    ]
    _Dispatcher(builder, points, open_, (inputs, results)).emit(dynamic["rules"])
    return relax.transform.Normalize()(builder.finalize())


class _Dispatcher:
    """Generates `main`, and a function for each way in which it uses a tuned size."""

    def __init__(
        self,
        builder: Any,
        points: Sequence[Sizes],
        open_: Sequence[str],
        ends: tuple[Sequence[Dims], Sequence[Dims]],
    ) -> None:
        self._builder, self._points, self._open = builder, points, open_
        self._inputs, self._results = ends
        self._of_point = [builder.get().get_global_var(f"main{point_suffix(point)}") for point in points]
        point_function = builder.get()[self._of_point[0]]
        self._many = isinstance(point_function.ret_ty, relax.TupleType)
        self._dtypes = [str(param.ty.dtype) for param in point_function.params]
        self._result_dtypes = [
            str(ty.dtype) for ty in (point_function.ret_ty.fields if self._many else [point_function.ret_ty])
        ]
        sizes, params = self._params()
        self._main = tvm.ir.GlobalVar("main")
        relax.expr._update_type(self._main, relax.FuncType([p.ty for p in params], self._type(sizes)))

    def emit(self, rules: Sequence[Rule]) -> None:
        """Add `main`, which applies the rules, and the functions that it calls."""
        sizes, params = self._params()
        runners = {
            key: self._add_pad_or_split_function(*key)
            for key in dict.fromkeys((r["point"], r["first"]) for r in rules)
        }
        whole_points = [rule["point"] for rule in rules if not rule["first"]]
        fits = {point: self._add_exact_size_function(point) for point in whole_points}
        runs = []
        for rule in rules:
            run = relax.Call(runners[rule["point"], rule["first"]], params)
            if not rule["first"]:
                point_sizes = self._points[rule["point"]]
                same = tirx.all(*(sizes[name] == size for name, size in point_sizes.items()))
                run = relax.If(same, relax.Call(fits[rule["point"]], params), run)
            runs.append(run)
        last = len(self._points) - 1
        largest = fits.get(last) or self._add_exact_size_function(last)
        # The index of the first rule that covers the sizes, or the number of rules.
        place: Any = tirx.const(len(rules), "int64")
        for number, rule in reversed(list(enumerate(rules))):
            bounds = [sizes[name] <= limit for name, limit in rule["upto"].items()]
            place = tirx.Select(tirx.all(*bounds), tirx.const(number, "int64"), place)
        body = _branch_by_range(place, [*runs, relax.Call(largest, params)], 0)
        function = relax.Function(params, body, self._type(sizes)).with_attr("global_symbol", "main")
        self._builder.update_func(self._main, function)

    def _add_pad_or_split_function(self, point: int, first: str) -> Any:
        """Add a function that pads inputs to a tuned size, or splits them along `first`."""
        sizes, params = self._params()
        builder, point_sizes = self._builder, self._points[point]
        shapes = [_sizes_at(dims, self._replace_open_sizes(point_sizes, sizes)) for dims in self._inputs]
        with builder.function(f"run{point_suffix(point_sizes)}{_plain(first)}", params, private=True):
            padded_inputs = []
            for param, shape in zip(params, shapes, strict=True):
                is_full = all(map(_is_equal, param.ty.shape, shape))
                padded_inputs.append(param if is_full else builder.emit_te(_filled, param, shape))
            parts = [self._fields(relax.Call(self._of_point[point], padded_inputs))]
            if first:
                cut = [[point_sizes[first] if dim == first else 0 for dim in dims] for dims in self._inputs]
                remaining = [
                    builder.emit_te(_slice_after_offsets, p, counts) if any(counts) else p
                    for p, counts in zip(params, cut, strict=True)
                ]
                parts.append(self._fields(relax.Call(self._main, remaining)))
            results = [
                builder.emit_te(
                    _concatenate_in_te,
                    [part[n] for part in parts],
                    _sizes_at(dims, sizes),
                    dims.index(first) if first in dims else -1,
                )
                for n, dims in enumerate(self._results)
            ]
            return builder.emit_func_output(relax.Tuple(results) if self._many else results[0])

    def _add_exact_size_function(self, point: int) -> Any:
        """Add a function for inputs of exactly a tuned size, which makes no copies."""
        sizes, params = self._params()
        builder, point_sizes = self._builder, self._points[point]
        with builder.function(f"fits{point_suffix(point_sizes)}", params, private=True):
            pairs = zip(params, self._inputs, self._dtypes, strict=True)
            own_sizes = self._replace_open_sizes(point_sizes, sizes)
            cast = [
                builder.match_cast(p, relax.TensorType(_sizes_at(dims, own_sizes), dtype))
                for p, dims, dtype in pairs
            ]
            results = self._fields(relax.Call(self._of_point[point], cast))
            types = self._types(sizes)
            typed_results = [builder.match_cast(value, ty) for value, ty in zip(results, types, strict=True)]
            return builder.emit_func_output(relax.Tuple(typed_results) if self._many else typed_results[0])

    def _fields(self, call: Any) -> list[Any]:
        result = self._builder.emit(call)
        if not self._many:
            return [result]
        return [self._builder.emit(relax.TupleGetItem(result, n)) for n in range(len(self._results))]

    def _replace_open_sizes(self, point_sizes: Sizes, sizes: Mapping[str, Any]) -> dict[str, Any]:
        return {**point_sizes, **{name: sizes[name] for name in self._open}}

    def _params(self) -> tuple[dict[str, Any], list[Any]]:
        """Return fresh size variables, and input variables that have these sizes."""
        names = sorted({name for dims in self._inputs for dim in dims for name in dimension_names_of(dim)})
        sizes = {name: tirx.Var(_plain(name), "int64") for name in names}
        pairs = zip(self._inputs, self._dtypes, strict=True)
        types = [relax.TensorType(_sizes_at(dims, sizes), dtype) for dims, dtype in pairs]
        return sizes, [relax.Var(f"input_{number}", ty) for number, ty in enumerate(types)]

    def _type(self, sizes: Mapping[str, Any]) -> Any:
        types = self._types(sizes)
        return relax.TupleType(types) if self._many else types[0]

    def _types(self, sizes: Mapping[str, Any]) -> list[Any]:
        pairs = zip(self._results, self._result_dtypes, strict=True)
        return [relax.TensorType(_sizes_at(dims, sizes), dtype) for dims, dtype in pairs]


@relax.expr_functor.mutator
class _Renaming(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, names: Mapping[str, Any]) -> None:
        super().__init__()
        self._names = names

    def visit_global_var_(self, op: Any) -> Any:
        return self._names.get(op.name_hint, op)


def _rename_functions(mod: Any, ending: str) -> dict[Any, Any]:
    names: dict[str, Any] = {}
    for old in mod.get_global_vars():
        names[old.name_hint] = tvm.ir.GlobalVar(old.name_hint + ending)
        relax.expr._update_type(names[old.name_hint], old.ty)
    renaming, functions = _Renaming(names), {}
    for old in mod.get_global_vars():
        function, new = mod[old], names[old.name_hint]
        if isinstance(function, relax.Function):
            function = renaming.visit_expr(function)
        if function.attrs and "global_symbol" in function.attrs:
            function = function.with_attr("global_symbol", new.name_hint)
        functions[new] = function
    return functions


def _results(mod: Any, point: Sizes, open_: Sequence[str]) -> Iterator[tuple[Sizes, list[list[int]]]]:
    """Yield a tuned size and its results' shapes; if a dimension grows, at two lengths."""
    result = mod["main"].ret_ty
    fields = result.fields if isinstance(result, relax.TupleType) else [result]
    if not open_:
        yield point, [list(map(int, field.shape)) for field in fields]
        return
    length = generalize_two_lengths.length_of(mod)
    for sample in generalize_two_lengths.LENGTHS:
        shapes = [sizes_at(field.shape, length, sample) for field in fields]
        yield {**point, open_[0]: sample}, shapes


def _branch_by_range(place: Any, runs: Sequence[Any], first: int) -> Any:
    """Return nested branches that run `runs[place - first]`, found by binary search."""
    if len(runs) == 1:
        return runs[0]
    middle = first + len(runs) // 2
    low = _branch_by_range(place, runs[: middle - first], first)
    return relax.If(place < middle, low, _branch_by_range(place, runs[middle - first :], middle))


def _filled(tensor: Any, shape: Sequence[int]) -> Any:
    def value(*indices: Any) -> Any:
        ends = zip(indices, tensor.shape, shape, strict=True)
        conditions = [i < have for i, have, target in ends if not _is_equal(have, target)]
        zero = tirx.const(0, tensor.dtype)
        if not conditions:
            return tensor(*indices)
        return tirx.if_then_else(tirx.all(*conditions), tensor(*indices), zero)

    return te.compute(shape, value, name="filled")


def _slice_after_offsets(tensor: Any, offsets: Sequence[int]) -> Any:
    return te.compute(
        [have - offset for have, offset in zip(tensor.shape, offsets, strict=True)],
        lambda *indices: tensor(*(i + offset for i, offset in zip(indices, offsets, strict=True))),
        name="after",
    )


def _concatenate_in_te(parts: Sequence[Any], shape: Sequence[Any], axis: int) -> Any:
    """Concatenate the results of one or two parts along an axis, in this shape."""
    if len(parts) == 1 or axis < 0:
        return te.compute(shape, lambda *indices: parts[0](*indices), name="merged")
    first, second = parts
    length = first.shape[axis]

    def value(*indices: Any) -> Any:
        second_indices = [i - length if number == axis else i for number, i in enumerate(indices)]
        return tirx.if_then_else(indices[axis] < length, first(*indices), second(*second_indices))

    return te.compute(shape, value, name="merged")


def _sizes_at(dims: Dims, sizes: Mapping[str, Any]) -> list[Any]:
    return [_size(dim, sizes) for dim in dims]


def _size(dim: Any, sizes: Mapping[str, Any]) -> Any:
    if not isinstance(dim, str):
        return dim
    first, *names = (int(name) if name.isdigit() else sizes[name] for name in dim.split(PLUS))
    for size in names:
        first = first + size
    return first


def _is_equal(have: Any, target: Any) -> bool:
    return bool(tvm.sym.Analyzer().can_prove_equal(have, target))


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name)
