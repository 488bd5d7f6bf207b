"""A GPU makes the same pairs as a CPU, without waiting for the device."""

import pytest
import torch

from gocor.data.synthetic import PRESETS, SyntheticPairs

from .toy import object_store, photo_store

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def stores(folder, device):
    cutouts = object_store()
    cutouts.pixels, cutouts.device = cutouts.pixels.to(device), torch.empty(0, device=device).device
    return photo_store(folder, device=device), cutouts


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("tf32", [False, True])
def test_a_gpu_makes_the_pairs_of_the_cpu(tmp_path, request, name, tf32):
    before = torch.backends.cuda.matmul.allow_tf32  # monkeypatch cannot restore this attribute
    request.addfinalizer(lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", before))
    torch.backends.cuda.matmul.allow_tf32 = tf32
    batches = []
    for device in ("cpu", "cuda"):
        photos, objects = stores(tmp_path, device)
        batches.append(SyntheticPairs(photos, preset=name, size=(96, 128), objects=objects).batch(0, 8).to("cpu"))
    expected, ours = batches
    assert (ours.valid != expected.valid).float().mean() < 0.005
    assert (ours.occluded != expected.occluded).float().mean() < 0.005
    both = (ours.valid & expected.valid)[:, 0]
    assert (ours.flow - expected.flow).abs().amax(1)[both].quantile(0.99) < 0.01
    assert (ours.reference - expected.reference).abs().mean() < 0.3
    assert (ours.query - expected.query).abs().mean() < 0.3


@pytest.mark.parametrize("name", PRESETS)
def test_nothing_waits_for_the_device(tmp_path, name):
    photos, objects = stores(tmp_path, "cuda")
    pairs = SyntheticPairs(photos, preset=name, size=(96, 128), objects=objects)
    pairs.batch(0, 4)
    torch.cuda.set_sync_debug_mode("error")
    try:
        pairs.batch(1, 4)
        pairs.batch(2, 4)
    finally:
        torch.cuda.set_sync_debug_mode("default")
