"""Several operators as one program.

Comes in: calls of operators, one after the other, on what calls before them gave. Goes
out: one `Program` of all that the results need. Each operator promotes and rounds as it
does alone, except that half types stay in float32 between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fuser import dtypes, ir
from fuser.dtypes import DType, Kind
from fuser.errors import FormulaError
from fuser.functions import default_value
from fuser.ir import Node, Static
from fuser.lower import Lowering
from fuser.pipeline import Compiler, output_of
from fuser.program import Program, used
from fuser.simplify import simplify
from fuser.specs import TensorSpec
from fuser.values import NUMBER_DTYPES, Number, Tensor, Tuple, Value


class Composition:
    """Operators of `compiler` called in order; `default` is torch.get_default_dtype().

    Values are handed from call to call; names of tensors and numbers must differ.
    """

    def __init__(self, compiler: Compiler, default: DType = dtypes.float32) -> None:
        self.compiler = compiler
        self.default = default
        self.lowering = Lowering(compiler.functions, compiler.opaque, default)
        self.inputs: list[Node] = []
        self.scalars: list[Node] = []
        self.calls: list[str] = []

    def tensor(self, name: str, spec: TensorSpec) -> Tensor:
        """A tensor that the program is given."""
        node = ir.input_(name, spec.dtype)
        self.inputs.append(node)
        return Tensor(ir.cast(node, spec.dtype.opmath), spec.dtype, spec.zero_dim)

    def number(self, name: str, kind: Kind) -> Number:
        """A number that the program is given at run time."""
        node = ir.scalar(name, NUMBER_DTYPES[kind])
        self.scalars.append(node)
        return Number(node)

    def constant(
        self, value: ir.Number, dtype: DType, zero_dim: bool = False
    ) -> Tensor:
        """A tensor that has the value everywhere."""
        return Tensor(ir.const(value, dtype.opmath), dtype, zero_dim)

    def converted(self, value: Value, dtype: DType) -> Value:
        """The value in another dtype, as `Tensor.to` gives it."""
        return self.lowering.converted(value, dtype)

    def apply(self, operator: str, given: Mapping[str, Value]) -> tuple[Value, ...]:
        """The results of the operator of that full name; defaults are filled in.

        FormulaError where it has no pointwise value or does not take such arguments;
        KeyError for an unknown name.
        """
        function = self.compiler.operator(operator).function
        if function is None or function.promotes is None:
            raise FormulaError(f"{operator} has no pointwise value")
        bound: dict[str, Value] = {}
        for argument in function.signature.arguments:
            if argument.name in given:
                bound[argument.name] = given[argument.name]
            elif argument.default is not None:
                bound[argument.name] = default_value(argument)
            else:
                bound[argument.name] = Static(None)
        value = self.lowering.call(function, bound)
        self.calls.append(operator)
        return value.items if isinstance(value, Tuple) else (value,)

    def program(self, name: str, results: Sequence[Value]) -> Program:
        """The program of those results; its inputs and numbers are what they need."""
        single = len(results) == 1
        outputs = tuple(
            output_of("result" if single else f"result{i}", value, self.default)
            for i, value in enumerate(results)
        )
        roots = simplify([o.node for o in outputs])
        return Program(
            name,
            used(tuple(self.inputs), roots),
            used(tuple(self.scalars), roots),
            outputs,
            tuple(self.calls),
        ).with_roots(roots)
