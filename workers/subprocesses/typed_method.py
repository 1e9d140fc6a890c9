"""Typed methods of helper processes, declared once for the side that calls and the side that serves.

    class Compiler(Child):
        MODULE = "mallorn.workers.tvm.candidate_compiler_child"

        @method(limit_sec=120.0)
        def full_trace(self, tir: str, trace: str) -> str | None:
            "The trace with its decisions."

`compiler.full_trace(tir, trace)` calls the helper process. There, the declared method's `make_handler` wraps
the function that answers the call. A time limit may be a function of the call's arguments.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    NamedTuple,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    get_type_hints,
    overload,
)

from pydantic import ConfigDict, create_model

from mallorn.workers.subprocesses.pending_call import Call, PendingCall

P = ParamSpec("P")
R = TypeVar("R")
Given = Mapping[str, Any]  # arguments of a call, by their names
Limit = float | Callable[[Given], float]
Served = Mapping[str, Callable[[bytes], bytes]]  # methods by name, from their parameters to their results


_CONFIG: Final = ConfigDict(
    extra="forbid",
    protected_namespaces=(),
    ser_json_inf_nan="constants",
    ser_json_bytes="base64",
    val_json_bytes="base64",
)


class Handler(NamedTuple):
    """A method's name, and the function from packed parameters to a packed result."""

    name: str
    function: Callable[[bytes], bytes]


class Fields:
    """Named, typed values sent as JSON. A value of a wrong type raises ValueError at the sender."""

    def __init__(self, name: str, types: Mapping[str, object]) -> None:
        required: dict[str, Any] = {field: (kind, ...) for field, kind in types.items()}
        self._model: Any = create_model(name, __config__=_CONFIG, **required)

    def pack(self, values: Mapping[str, object]) -> bytes:
        text: str = self._model.model_construct(**values).model_dump_json(
            warnings="error", exclude_unset=True
        )
        return text.encode()

    def unpack(self, body: bytes) -> dict[str, Any]:
        """Return the values of a JSON object, converted to their types."""
        read = self._model.model_validate_json(body)
        return {name: getattr(read, name) for name in self._model.model_fields}


class Asker(Protocol):
    """The methods of a helper process that typed methods call; tests have fakes."""

    def ask(self, call: Call[R], /) -> R: ...
    def begin(self, call: Call[R], /) -> PendingCall[R]: ...


class Method(Generic[P, R]):
    """A declared method. On an instance, it calls the process; on the class, it creates
    calls (`make_call`) and handlers (`make_handler`)."""

    def __init__(self, declared: Callable[Concatenate[Any, P], R], limit_sec: Limit) -> None:
        self.name = declared.__name__
        self.__doc__ = declared.__doc__
        self._declared = declared
        self._limit_sec = limit_sec

    @overload
    def __get__(self, caller: None, owner: type) -> Self: ...
    @overload
    def __get__(self, caller: Asker, owner: type) -> "BoundMethod[P, R]": ...
    def __get__(self, caller: Asker | None, owner: type) -> "Self | BoundMethod[P, R]":
        return self if caller is None else BoundMethod(self, caller)

    def make_call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = bound.arguments
        limit_sec = self._limit_sec if isinstance(self._limit_sec, int | float) else self._limit_sec(values)
        arguments = self._params.pack(values)
        return Call(self.name, arguments, limit_sec, lambda body: self._result.unpack(body)["value"])

    def make_handler(self, function: Callable[P, R]) -> Handler:
        """Make `function` the method's handler. Raises TypeError if its parameters differ."""
        signature = inspect.signature(function)
        signature.bind(**dict.fromkeys(self._signature.parameters))  # raises TypeError for other parameters

        def handle_call(params: bytes) -> bytes:
            answered: Callable[..., R] = function
            return self._result.pack({"value": answered(**self._params.unpack(params))})

        return Handler(self.name, handle_call)

    @cached_property
    def _signature(self) -> inspect.Signature:
        signature = inspect.signature(self._declared)
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    @cached_property
    def _hints(self) -> dict[str, object]:
        return get_type_hints(self._declared)

    @cached_property
    def _params(self) -> Fields:
        return Fields(self.name, {name: self._hints[name] for name in self._signature.parameters})

    @cached_property
    def _result(self) -> Fields:
        return Fields(self.name, {"value": self._hints["return"]})


class BoundMethod(Generic[P, R]):
    def __init__(self, method: Method[P, R], caller: Asker) -> None:
        self._method = method
        self._caller = caller

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the process and return the result. Raises ChildTimeout, ChildCrashed,
        ChildFailed or the MallornError that the method raised."""
        return self._caller.ask(self._method.make_call(*args, **kwargs))

    def begin(self, *args: P.args, **kwargs: P.kwargs) -> PendingCall[R]:
        """Send the call without waiting for its result."""
        return self._caller.begin(self._method.make_call(*args, **kwargs))

    def call_with_limit(self, limit_sec: float, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the process with this time limit instead of the declared one."""
        return self._caller.ask(self._method.make_call(*args, **kwargs).with_limit(limit_sec))


def method(limit_sec: Limit) -> Callable[[Callable[Concatenate[Any, P], R]], Method[P, R]]:
    """Declare a method of a helper process; its time limit starts when the process is ready."""
    return lambda declared: Method(declared, limit_sec)


def collect_handlers(interface: type, *given_handlers: Handler) -> Served:
    """Return the handlers by name, for `serve`. Raises TypeError unless `given_handlers`
    are exactly the methods that the class `interface` declares."""
    handlers = dict(given_handlers)
    declared = {name for name in dir(interface) if isinstance(getattr(interface, name), Method)}
    if handlers.keys() != declared:
        undefined, unknown = sorted(declared - handlers.keys()), sorted(handlers.keys() - declared)
        raise TypeError(f"{interface.__name__}: not served: {undefined}; not declared: {unknown}")
    return handlers
