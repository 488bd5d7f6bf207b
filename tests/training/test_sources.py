"""Which photos are held out, and batches made ahead."""

import threading
from itertools import pairwise

import pytest
import torch

from gocor.models.zoo import SHIPPED
from gocor.training.sources import MixedPairs, batches, hold_out, open_sources

from .toy import Toy, toy_config


@pytest.mark.parametrize(("photos", "count"), [(40, 8), (200, 10), (2295, 115)])
def test_some_photos_are_held_out(photos, count):
    train, held_out = hold_out(range(photos))
    assert (len(train), len(held_out)) == (photos - count, count)
    assert set(train) | set(held_out) == set(range(photos))
    assert max(b - a for a, b in pairwise(held_out)) <= -(-photos // count)


def test_few_photos_serve_both():
    assert hold_out(range(39)) == (range(39), range(39))


def test_batches_come_in_order_and_are_made_elsewhere():
    threads = set()

    class Noting(Toy):
        def batch(self, step, batch_size, *, rank=0, world_size=1):
            threads.add(threading.current_thread())
            return super().batch(step, batch_size, rank=rank, world_size=world_size)

    source = Noting((32, 32))
    coming = batches(source, 3, 4, rank=1, world_size=2, device=torch.device("cpu"))
    for step in (3, 4, 5):
        expected = Toy((32, 32)).batch(step, 4, rank=1, world_size=2)
        assert torch.equal(next(coming).reference, expected.reference)
    coming.close()
    assert threading.main_thread() not in threads
    assert not any(thread.is_alive() for thread in threads)


def test_an_error_on_the_way_is_raised_where_it_is_seen():
    class Broken(Toy):
        def batch(self, step, *args, **options):
            if step == 1:
                raise ValueError("the photo is gone")
            return super().batch(step, *args, **options)

    coming = batches(Broken((32, 32)), 0, 2, rank=0, world_size=1, device=torch.device("cpu"))
    next(coming)
    with pytest.raises(ValueError, match="the photo is gone"):
        next(coming)


@pytest.mark.parametrize(("batch", "world_size"), [(7, 1), (2, 1), (4, 2)])
def test_presets_get_equal_shares_over_the_steps(batch, world_size):
    """Even if they cannot get them within a batch; all processes take the same shares."""
    asked = [0, 0, 0, 0]

    class Counting(Toy):
        def __init__(self, number):
            super().__init__((16, 16), number)
            self.number = number

        def batch(self, step, batch_size, *, rank=0, world_size=1):
            asked[self.number] += batch_size // world_size
            return super().batch(step, batch_size, rank=rank, world_size=world_size)

    mixed = MixedPairs([Counting(number) for number in range(4)])
    for step in range(4):
        parts = [mixed.batch(step, batch, rank=rank, world_size=world_size) for rank in range(world_size)]
        assert [len(part) for part in parts] == [batch // world_size] * world_size
    assert asked == [batch] * 4


def test_presets_of_a_batch_are_drawn_apart(tmp_path):
    """With one seed for all, they would show the same photos."""
    config = toy_config(tmp_path, data=[str(SHIPPED.with_name("assets"))], preset="static+static", seed=2)
    sources = open_sources(config, torch.device("cpu"))
    for source in (sources.train, sources.validation):
        batch = source.batch(0, 2)
        assert not torch.equal(batch.reference[0], batch.reference[1])
