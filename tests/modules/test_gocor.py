"""What both modules promise: one contract, tried on several configurations."""

import pytest
import torch
import torch.nn.functional as F

from gocor import GlobalFeatureCorrelation, GlobalGOCor, LocalFeatureCorrelation, LocalGOCor
from gocor.ops import transpose_global_volume, transpose_local_volume
from gocor.ops.correlation import global_correlation, local_correlation
from tests.conftest import relative_error, results_of_flat_images

MODULES = {
    "global": lambda **o: GlobalGOCor(8, **o),
    "global-r": lambda **o: GlobalGOCor(8, query_objective=False, **o),
    "global-filters": lambda **o: GlobalGOCor(8, form="filters", **o),
    "local": lambda **o: LocalGOCor(2, **o),
    "local-rq": lambda **o: LocalGOCor(2, query_objective=True, **o),
    "local-context": lambda **o: LocalGOCor(2, initializer="flexible-context", channels=8, **o),
}
every_module = pytest.mark.parametrize("name", MODULES)


def pair(device, *size, dtype=torch.float32):
    return torch.randn(2, *size, dtype=dtype, device=device).unbind()


@every_module
def test_same_shape_as_the_plain_layer(name, device):
    reference, query = pair(device, 2, 8, 5, 6)
    plain = GlobalFeatureCorrelation() if "global" in name else LocalFeatureCorrelation(2)
    assert MODULES[name]().to(device)(reference, query).shape == plain(reference, query).shape
    assert torch.equal(plain(reference, query, iters=3), plain(reference, query))


@every_module
def test_no_iterations_leave_the_initial_filters(name, device):
    module = MODULES[name]().to(device)
    reference, query = pair(device, 2, 8, 5, 6)
    filters = module.initializer(reference)
    plain = (
        global_correlation(filters, query)
        if "global" in name
        else local_correlation(filters, query, 2, normalize="sum")
    )
    torch.testing.assert_close(module(reference, query, iters=0), plain)


@every_module
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_batch_is_its_samples_one_by_one(name, bidirectional, device):
    module = MODULES[name](bidirectional=bidirectional).to(device)
    reference, query = pair(device, 3, 8, 5, 6)
    singles = torch.cat([module(reference[i : i + 1], query[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(module(reference, query), singles, rtol=1e-4, atol=1e-5)
    assert module(reference[:0], query[:0]).shape == (0, *singles.shape[1:])


@every_module
def test_a_nan_stays_in_its_sample(name, device):
    module = MODULES[name]().to(device)
    reference, query = pair(device, 3, 8, 5, 6)
    clean = module(reference, query)
    for spoilt in (reference, query):
        spoilt[1, 3, 2, 2] = float("nan")
        volume = module(reference, query)
        torch.testing.assert_close(volume[[0, 2]], clean[[0, 2]])
        assert volume[1].isnan().any()


def test_a_translation_of_both_images_translates_a_global_volume(device):
    """Exactly so where a filter is as far from every border as the distance basis reaches."""
    module = GlobalGOCor(8, query_objective=False).to(device, torch.float64)
    reference, query = pair(device, 1, 8, 14, 15, dtype=torch.float64)
    volume = module(reference, query).view(1, 14, 15, 14, 15)
    moved = module(reference.roll((1, 2), (2, 3)), query.roll((1, 2), (2, 3))).view(1, 14, 15, 14, 15)
    back = moved.roll((-1, -2), (1, 2)).roll((-1, -2), (3, 4))
    inside = ..., slice(5, 8), slice(5, 8)
    torch.testing.assert_close(back[inside], volume[inside])


@pytest.mark.parametrize("initializer", ["zero", "simple", "flexible-simple"])
def test_a_translation_of_both_images_translates_a_local_volume(initializer, device):
    module = LocalGOCor(2, initializer=initializer, channels=8).to(device, torch.float64)
    reference, query = pair(device, 1, 8, 12, 13, dtype=torch.float64)
    whole, part = module(reference, query), module(reference[:, :, 1:, 3:], query[:, :, 1:, 3:])
    torch.testing.assert_close(part[:, :, 2:-2, 2:-2], whole[:, :, 3:-2, 5:-2])


@every_module
@pytest.mark.parametrize("size", [(1, 1), (1, 2), (3, 2), (4, 5)])
@pytest.mark.parametrize("value", [0.0, 1e-20, 1e-6, 1.0, 100.0])
@pytest.mark.parametrize("scale_free_step", [False, True])
def test_degenerate_features_give_finite_values_and_gradients(name, size, value, scale_free_step, device):
    module = MODULES[name](scale_free_step=scale_free_step).to(device)
    for noise in (0.0, 1.0):  # constant, then merely tiny or large
        features = value * (1 + noise * torch.randn(2, 2, 8, *size, device=device))
        reference, query = (f.requires_grad_() for f in features.unbind())
        volume = module(reference, query)
        assert volume.isfinite().all()
        volume.mean().backward()
        for leaf in (reference, query, *module.parameters()):
            assert leaf.grad is None or leaf.grad.isfinite().all()


@every_module
@pytest.mark.parametrize("value", [0.7, 33.3, 77.7, 100.0, 123.4, 3000.0])
@pytest.mark.parametrize("size", [(4, 5), (9, 10)])
def test_flat_images_have_the_volume_and_gradients_of_float64(name, value, size, device):
    """All features are the same: the mean is collinear with each, and one step leads to the optimum."""
    (volume, *gradients), (exact, *exact_gradients) = (
        results_of_flat_images(MODULES[name]().to(device, dtype), value, size)
        for dtype in (torch.float32, torch.float64)
    )
    torch.testing.assert_close(volume.double(), exact, rtol=1e-3, atol=1e-4)
    for ours, true in zip(gradients, exact_gradients, strict=True):
        assert (ours - true).norm() <= 0.5 * true.norm() + 1e-7


@every_module
@pytest.mark.parametrize(("half", "bound"), [(torch.float16, 2e-3), (torch.bfloat16, 1e-2)])
def test_sixteen_bit_inputs_are_optimised_in_float32(name, half, bound, device):
    module = MODULES[name]().to(device)
    reference, query = (x.to(half) for x in pair(device, 1, 8, 5, 6))
    expected = module(reference.float(), query.float())
    for autocast in (False, True):
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=autocast):
            volume = module(reference, query)
        assert volume.dtype == half
        assert relative_error(volume, expected) < bound
    reference.requires_grad_()
    module(reference, query).sum().backward()
    assert reference.grad is not None
    assert reference.grad.isfinite().all()


@every_module
def test_mixed_dtypes_under_autocast_take_the_wider(name, device):
    module = MODULES[name]().to(device)
    reference, query = pair(device, 1, 8, 5, 6)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        volume = module(reference.bfloat16(), query)
        assert volume.dtype == torch.float32
        torch.testing.assert_close(volume, module(reference.bfloat16().float(), query))


@every_module
@pytest.mark.parametrize("options", [{}, {"eta": 0.1}, {"bidirectional": True}], ids=str)
def test_gradcheck(name, options, device):
    module = MODULES[name](**options).to(device, torch.float64)
    if module.query_objective is not None:
        torch.nn.init.normal_(module.query_objective.weight1, std=0.3)
        torch.nn.init.normal_(module.query_objective.weight2, std=0.3)
    inputs = tuple(x.requires_grad_() for x in pair(device, 1, 8, 2, 3, dtype=torch.float64))
    parameters = dict(module.named_parameters())

    def call(reference, query, *values):
        replaced = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(module, replaced, (reference, query))

    values = tuple(p.detach().clone().requires_grad_() for p in parameters.values())
    # Convolutions sum in any order on a GPU.
    assert torch.autograd.gradcheck(call, (*inputs, *values), fast_mode=True, nondet_tol=1e-9)


@every_module
def test_every_parameter_is_learnt(name, device):
    module = MODULES[name]().to(device)
    module(*pair(device, 1, 8, 6, 6)).square().sum().backward()
    for parameter_name, parameter in module.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name


@every_module
def test_compiles_as_one_graph(name, device):
    from torch._dynamo.testing import CompileCounterWithBackend

    module, counter = MODULES[name]().to(device), CompileCounterWithBackend("aot_eager")
    reference, query = (x.requires_grad_() for x in pair(device, 1, 8, 5, 6))
    compiled = torch.compile(module, fullgraph=True, backend=counter)
    expected = module(reference, query)
    volume = compiled(reference, query)
    torch.testing.assert_close(volume, expected)
    gradients = (torch.autograd.grad(v.square().sum(), (reference, query)) for v in (volume, expected))
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
    assert len(counter.graphs) == 1
    assert len(counter.graphs[0].graph.nodes) < 400  # not unrolled over displacements


@every_module
def test_an_export_holds_no_custom_operator(name):
    module, (reference, query) = MODULES[name](iters=1).eval(), pair("cpu", 1, 8, 5, 6)
    program = torch.export.export(module, (reference, query))
    assert not [node for node in program.graph.nodes if "gocor" in str(node.target)]
    torch.testing.assert_close(program.module()(reference, query), module(reference, query), rtol=1e-4, atol=1e-5)


@every_module
def test_explanation_tells_what_forward_does(name, device):
    module = MODULES[name]().to(device)
    reference, query = pair(device, 2, 8, 5, 6)
    told = module.explain(reference, query, iters=2)
    assert len(told.filters) == len(told.reference_volumes) == len(told.query_volumes) == 3
    assert len(told.step_lengths) == 2
    for iters in range(3):
        volume = module(reference, query, iters=iters)
        torch.testing.assert_close(told.query_volumes[iters], volume, rtol=1e-4, atol=1e-5)
    plain = GlobalFeatureCorrelation() if "global" in name else LocalFeatureCorrelation(2, normalize="sum")
    torch.testing.assert_close(told.reference_volumes[2], plain(told.filters[2], reference), rtol=1e-4, atol=1e-5)
    assert told.objective.shape == (3, 2)
    assert (told.query_term > 0).all() == (module.query_objective is not None)
    step_shape = (2, 1, 5, 6) if module.query_objective is None else (2, 1, 1, 1)
    assert told.step_lengths[0].shape == step_shape


@pytest.mark.parametrize("query_objective", [False, True])
def test_bidirectional_fusion_is_symmetric(query_objective, device):
    reference, query = torch.randn(1, 8, 4, 5, device=device), torch.randn(1, 8, 3, 6, device=device)
    module = GlobalGOCor(8, query_objective=query_objective, bidirectional=True).to(device)
    exchanged = transpose_global_volume(module(query, reference), (4, 5))
    torch.testing.assert_close(module(reference, query), exchanged, rtol=1e-4, atol=1e-5)
    reference, query = pair(device, 1, 8, 5, 6)
    local = LocalGOCor(2, query_objective=query_objective, bidirectional=True).to(device)
    exchanged = transpose_local_volume(local(query, reference), 2)
    torch.testing.assert_close(local(reference, query), exchanged, rtol=1e-4, atol=1e-5)
    one_way = LocalGOCor(2, query_objective=query_objective).to(device)
    one_way.load_state_dict(local.state_dict())
    assert not torch.allclose(local(reference, query), one_way(reference, query))


def test_suppresses_a_look_alike(device):
    """What the method is for: a second, similar pixel fires less and less, the true one stays."""
    features = F.normalize(torch.randn(1, 64, 6, 6, device=device), dim=1)
    features[..., 4, 4] = F.normalize(features[..., 1, 1] + 0.6 * features[..., 4, 4], dim=1)
    told = GlobalGOCor(64).to(device).explain(features, features, iters=7)
    look_alike, true = (torch.stack([v[0, y * 6 + y, 1, 1] for v in told.query_volumes]) for y in (4, 1))
    plain = global_correlation(features, features)[0, 4 * 6 + 4, 1, 1]
    assert plain > 0.8
    assert (look_alike / true)[3] < 0.8 * plain
    assert (look_alike / true)[7] < 0.6 * plain
    assert true[7] > 0.5
    assert (told.objective.diff(dim=0) < 0).all()


@every_module
def test_published_parameters_are_checked_before_they_are_taken(name):
    module = MODULES[name]()
    published = {key: parameter.detach().numpy() + 1 for key, parameter in module._published_names().items()}
    before = {key: value.clone() for key, value in module.state_dict().items()}
    first = next(iter(published))
    with pytest.raises(ValueError, match=f"missing \\['{first}'\\], unexpected \\['filter_optimizer.bias'\\]"):
        module.load_published({k: v for k, v in published.items() if k != first} | {"filter_optimizer.bias": 0})
    with pytest.raises(ValueError, match=f"{first} must have {published[first].size} values, got \\(3,\\)"):
        module.load_published(published | {first: torch.zeros(3)})
    torch.testing.assert_close(module.state_dict(), before)
    module.load_published(published)
    for key, value in module.state_dict().items():
        torch.testing.assert_close(value, before[key] + 1)
    assert not module.scale_free_step  # published parameters were trained with the floor


@every_module
def test_state_dict_round_trip(name):
    module, other = MODULES[name](), MODULES[name]()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter))
    other.load_state_dict(module.state_dict())
    reference, query = pair("cpu", 1, 8, 4, 5)
    torch.testing.assert_close(other(reference, query), module(reference, query))


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: GlobalGOCor(initializer="best"), ValueError, "initializer must be one of"),
        (lambda: LocalGOCor(initializer="flexible-simple"), ValueError, "pass channels="),
        (lambda: LocalGOCor(radius=-1), ValueError, "radius must be at least 0"),
        (lambda: LocalGOCor(iters=1.5), TypeError, "iters must be an integer"),
        (lambda: LocalGOCor(iters=-1), ValueError, "iters must be at least 0"),
        (lambda: GlobalGOCor(0), ValueError, "channels must be at least 1"),
        (lambda: GlobalGOCor(knots=0), ValueError, "knots must be at least 1"),
        (lambda: GlobalGOCor(spacing=0), ValueError, "spacing must be positive"),
        (lambda: GlobalGOCor(eta=-1), ValueError, "eta must not be negative"),
        (lambda: GlobalGOCor(query_kernel=2), ValueError, "query_kernel must be odd"),
        (lambda: GlobalGOCor(reference_objective="l1"), ValueError, "reference_objective must be one of"),
        (lambda: GlobalGOCor(form="fast"), ValueError, "form must be one of"),
        (lambda: GlobalGOCor(num_iter=3), TypeError, "num_iter"),
        (lambda: GlobalGOCor(8)(*torch.ones(2, 1, 7, 3, 3)), ValueError, "made for 8 channels, got 7"),
        (lambda: LocalGOCor()(torch.ones(1, 7, 3, 3), torch.ones(1, 7, 3, 4)), ValueError, "same height and width"),
        (lambda: LocalGOCor()(*torch.ones(2, 1, 7, 3, 3), iters=-2), ValueError, "iters must be at least 0"),
        (lambda: LocalGOCor().to("meta")(*torch.ones(2, 1, 7, 3, 3)), ValueError, "module is on meta"),
        (lambda: LocalFeatureCorrelation(-1), ValueError, "radius must be at least 0"),
        (lambda: GlobalFeatureCorrelation(normalize="max"), ValueError, "normalize must be one of"),
    ],
)
def test_bad_arguments(build, error, message):
    with pytest.raises(error, match=message):
        build()
