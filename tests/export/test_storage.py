"""Weights of ONNX files: float16 where the graph reads them as float16."""

import numpy as np
import pytest

from gocor.export.storage import store_converted


def graph_of(ir):
    """`x · half(a)`, twice, and `half(b) + half(float32 b · 1)`: `b` is read as float32 too."""
    values = {name: ir.tensor(np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3), name=name) for name in ("a", "b")}
    a, b = (ir.Value(name=n, shape=t.shape, type=ir.TensorType(t.dtype), const_value=t) for n, t in values.items())
    x = ir.Value(name="x", shape=ir.Shape([2, 3]), type=ir.TensorType(ir.DataType.FLOAT16))
    casts = [ir.node("Cast", [value], attributes={"to": ir.DataType.FLOAT16}) for value in (a, a, b)]
    half_a, again, half_b = (cast.outputs[0] for cast in casts)
    nodes = [*casts, ir.node("Mul", [x, half_a]), ir.node("Mul", [x, again]), ir.node("Mul", [b, b])]
    nodes += [ir.node("Cast", [nodes[5].outputs[0]], attributes={"to": ir.DataType.FLOAT16})]
    nodes += [ir.node("Add", [half_b, nodes[6].outputs[0]]), ir.node("Sum", [nodes[3].outputs[0], nodes[4].outputs[0]])]
    nodes += [ir.node("Mul", [nodes[7].outputs[0], nodes[8].outputs[0]])]
    result = nodes[-1].outputs[0]
    result.name, result.shape, result.type = "y", x.shape, x.type
    return ir.Graph([x], [result], nodes=nodes, initializers=[a, b], opset_imports={"": 20})


def test_weights_that_are_only_read_as_float16_are_stored_so(tmp_path):
    ir = pytest.importorskip("onnx_ir", reason="needs the extra `export`")
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra `export`")
    results, x = [], np.linspace(-1, 1, 6, dtype=np.float16).reshape(2, 3)
    for change in (False, True):
        graph = graph_of(ir)
        if change:
            store_converted(graph)
        ir.save(ir.Model(graph, ir_version=10), tmp_path / "model.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
        results.append(session.run(None, {"x": x})[0])
    assert {name: value.dtype.name for name, value in graph.initializers.items()} == {"a": "FLOAT16", "b": "FLOAT"}
    assert [node.op_type for node in graph].count("Cast") == 2  # of four
    np.testing.assert_array_equal(*results)
