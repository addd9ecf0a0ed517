"""A trained model as an ONNX graph, from raw columns to score and decision, in double precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from synthfair.data.bases import Spline, Steps
from synthfair.data.schema import Categorical, Numeric
from synthfair.errors import InputError

if TYPE_CHECKING:
    from synthfair.trained import TrainedModel

OPSET, IR_VERSION = 19, 9
"""The first operators that compare text; and the format that came with them."""

SCORE, DECISION = "score", "decision"


def to_graph(model: TrainedModel) -> onnx.ModelProto:
    """Converts a model to ONNX, see :meth:`synthfair.TrainedModel.to_onnx`."""
    if model.decision:
        raise InputError("to_onnx: the model decides by group, which has no counterpart there")
    schema, graph = model.schema_, _Graph()

    # From raw columns to what the model reads.
    blocks = {
        name: graph.number(name, column)
        if isinstance(column, Numeric)
        else graph.category(name, column, schema.missing_values)
        for name, column in schema.features.items()
    }
    widths = {name: len(names) for name, names in schema.encoded_blocks.items()}
    products = [
        graph.products(blocks[one], widths[one], blocks[other], widths[other])
        for one, other in schema.interactions or ()
    ]
    blocks = [*blocks.values(), *products]
    if model.group_input:
        group, n = None, 1
        for name in schema.attributes:
            column = schema.categorical(name)
            own = graph.category(name, column, schema.missing_values, first=0)
            group = graph.products(group, n, own, len(column.categories)) if group else own
            n *= len(column.categories)
        blocks.append(graph.add("Gather", group or "", np.arange(1, n), axis=1))
    inputs = graph.add("Concat", *blocks, axis=1)
    is_refused = graph.add("IsNaN", graph.add("ReduceSum", inputs, np.array([1]), keepdims=1))

    # The score. Rows that predict refuses, as a graph cannot: not-a-number, and no decision.
    h = inputs
    for layer in model.hidden:
        products = graph.add("MatMul", h, np.array(layer.weight).T)
        h = graph.add("Relu", graph.add("Add", products, np.array(layer.bias)))
    theta = np.array(model.theta)[:, None]
    weight, constant = (theta[:-1], theta[-1]) if model.intercept else (theta, np.zeros(1))
    score = graph.add("Add", graph.add("MatMul", h, weight), constant)
    graph.add("Where", is_refused, np.nan, score, output=SCORE)
    negative, positive = map(str, schema.decisions)
    labels = np.array([positive]), np.array([negative])
    decision = graph.add("Where", graph.add("Greater", score, 0.0), *labels)
    graph.add("Where", is_refused, np.array([""]), decision, output=DECISION)

    # An input that is called as a constant is would silently replace it.
    names = {one.name for one in graph.constants} | {node.output[0] for node in graph.nodes}
    for name in (one.name for one in graph.inputs):
        if name in names or not name:
            raise InputError(
                f"to_onnx: column {name!r}: a part of the graph has that name; rename it"
            )
    outputs = [
        helper.make_tensor_value_info(SCORE, TensorProto.DOUBLE, ["N", 1]),
        helper.make_tensor_value_info(DECISION, TensorProto.STRING, ["N", 1]),
    ]
    title = schema.name or "synthfair"
    result = helper.make_model(
        helper.make_graph(graph.nodes, title, graph.inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="synthfair",
        producer_version=model.version,
    )
    helper.set_model_props(
        result, {"sha256": model.sha256, "schema_hash": schema.hash, "loss": model.loss}
    )
    onnx.checker.check_model(result)
    return result


class _Graph:
    """Nodes in order; what is given as an array becomes a constant of the graph."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, operator: str, *inputs: Any, output: str | None = None, **attributes: Any) -> str:
        """A node; returns the name of its output."""
        output = output or f"({len(self.nodes)}) {operator}"
        names = []
        for value in inputs:
            name = value
            if not isinstance(value, str):
                array, name = np.asarray(value), f"(constant {len(self.constants)})"
                array = array.astype(object) if array.dtype.kind == "U" else array
                self.constants.append(numpy_helper.from_array(array, name))
            names.append(name)
        self.nodes.append(helper.make_node(operator, names, [output], **attributes))
        return output

    def column(self, name: str, kind: int) -> str:
        """[N, 1] an input of the graph."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, ["N", 1]))
        return name

    def indicator(self, condition: str) -> str:
        """1 where the condition holds, else 0."""
        return self.add("Cast", condition, to=TensorProto.DOUBLE)

    def products(self, one: str, n: int, other: str, m: int) -> str:
        """[N, n m] all products of columns of one block [N, n] and of another [N, m]."""
        places = np.divmod(np.arange(n * m), m)
        blocks = zip((one, other), places, strict=True)
        return self.add("Mul", *(self.add("Gather", block, at, axis=1) for block, at in blocks))

    def number(self, name: str, column: Numeric) -> str:
        """[N, ...] a number, scaled, or functions of that; and whether it is missing."""
        x, lower, upper = self.column(name, TensorProto.DOUBLE), column.lower, column.upper
        if column.out_of_range == "clip":
            in_range = self.add("Less", self.add("Abs", x), np.inf)
        else:
            inside = self.add("GreaterOrEqual", x, lower), self.add("LessOrEqual", x, upper)
            in_range = self.add("And", *inside)
        above = self.add("Sub", self.add("Clip", x, lower, upper), lower)
        scaled = self.add("Where", in_range, self.add("Div", above, upper - lower), np.nan)
        block = self.functions(scaled, column, column.basis) if column.basis else scaled
        if column.missing == "refuse":
            return block
        missing = self.add("IsNaN", x)
        block = self.add("Where", missing, 0.0, block)
        return self.add("Concat", block, self.indicator(missing), axis=1)

    def functions(self, z: str, column: Numeric, basis: Spline | Steps) -> str:
        """[N, k] the basis functions of a scaled number [N, 1]; not-a-number where it is."""
        nothing = self.add("Mul", z, 0.0)
        if isinstance(basis, Steps):
            edges = (np.array(basis.edges) - column.lower) / (column.upper - column.lower)
            found = self.indicator(self.add("GreaterOrEqual", z, edges[None]))
            return self.add("Add", found, nothing)
        begins, coefficients = basis.pieces(column.lower, column.upper)
        beyond = self.indicator(self.add("GreaterOrEqual", z, begins[None]))
        last = np.eye(len(begins)) - np.eye(len(begins), k=-1)
        inside = self.add("MatMul", beyond, last)  # 1 for the piece that holds z
        from_begin = self.add("Mul", self.add("Sub", z, begins[None]), inside)
        power, found = inside, nothing
        for i in range(basis.degree + 1):
            found = self.add("Add", found, self.add("MatMul", power, coefficients[:, i]))
            power = self.add("Mul", power, from_begin)
        return found

    def category(
        self,
        name: str,
        column: Categorical,
        missing_values: tuple[str, ...],
        *,
        first: int | None = None,
    ) -> str:
        """[N, ...] an indicator of each category from the ``first`` on, and of missing.

        If that is not given, the first of two categories has none. What is not listed counts as the
        category ``unlisted``, where the column names one.
        """
        text = isinstance(column.categories[0], str)
        x = self.column(name, TensorProto.STRING if text else TensorProto.DOUBLE)
        values = np.array(column.categories, None if text else float)[None]
        hot = self.indicator(self.add("Equal", x, values))
        words = np.array([missing_values or ("",)])
        missing = self.indicator(self.add("Equal", x, words) if text else self.add("IsNaN", x))
        missing = self.add("ReduceMax", missing, np.array([1]), keepdims=1)
        if column.unlisted is not None:
            is_listed = self.add("ReduceSum", hot, np.array([1]), keepdims=1)
            other = self.add("Sub", 1.0, is_listed)
            if column.missing != "unlisted":
                other = self.add("Mul", other, self.add("Sub", 1.0, missing))
            place = np.array([[one == column.unlisted for one in column.categories]], float)
            hot = self.add("Add", hot, self.add("Mul", other, place))
        if column.missing == "category":
            hot = self.add("Concat", hot, missing, axis=1)
        first = int(len(column.categories) == 2) if first is None else first
        places = np.arange(first, len(column.categories) + (column.missing == "category"))
        indicators = self.add("Gather", hot, places, axis=1)
        if column.unknown and column.missing == "category":
            return indicators
        if column.unknown:
            allowed = self.add("Less", missing, 0.5)
        else:
            hits = self.add("ReduceSum", hot, np.array([1]), keepdims=1)
            allowed = self.add("Greater", hits, 0.0)
        return self.add("Where", allowed, indicators, np.nan)
