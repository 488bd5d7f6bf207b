"""Cache, buckets and worker: what is read when, what is matched together, and how much memory is used."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

from gocor.data.io import read_flow, read_image, write_image
from gocor.matching import MatchOptions
from gocor.matching.api import match_pictures
from gocor.models import create_model, load_model
from gocor.pipeline import images
from gocor.pipeline import worker as worker_module
from gocor.pipeline.buckets import Buckets, Loaded
from gocor.pipeline.images import ImageCache
from gocor.pipeline.job import Job
from gocor.pipeline.pairs import Pair
from gocor.pipeline.stores.folder import FolderStore
from gocor.pipeline.worker import Limits, Worker, network_match
from gocor.utils.errors import InputError

from .toy import check_folder_store, fake_match, make_job, make_pairs, picture


def test_an_image_is_read_once_by_all_threads():
    reads, start = [], threading.Barrier(4)

    def read(path):
        reads.append(path)
        time.sleep(0.05)
        return np.zeros(10, np.uint8)

    cache = ImageCache(100, read)

    def get(path):
        start.wait()
        return cache.get(path)

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(get, ["a"] * 4))
    assert reads == ["a"]
    assert all(image is found[0] for image in found)


def test_the_cache_forgets_what_was_not_used_for_longest():
    reads = []
    cache = ImageCache(20, lambda path: reads.append(path) or np.zeros(10, np.uint8))
    for path in "abacab":
        cache.get(path)
    assert reads == ["a", "b", "c", "b"]


def test_the_cache_does_not_keep_errors_or_images_beyond_its_limit():
    reads = []

    def read(path):
        reads.append(path)
        if path == "bad":
            raise InputError("bad")
        return np.zeros(30, np.uint8)

    cache = ImageCache(20, read)
    for path in ("bad", "bad", "large", "large"):
        if path == "bad":
            with pytest.raises(InputError):
                cache.get(path)
        else:
            assert len(cache.get(path)) == 30
    assert reads == ["bad", "bad", "large", "large"]


def loaded(name, height):
    return Loaded(
        Pair(Path(f"{name}1"), Path(f"{name}2"), name),
        {},
        np.zeros((height, 4, 3), np.uint8),
        np.zeros((2, 2, 3), np.uint8),
    )


def test_buckets_hold_pairs_of_equal_sizes():
    buckets = Buckets(2)
    for name, height in (("a", 4), ("b", 5), ("c", 4), ("d", 4), ("e", 6)):
        buckets.add(loaded(name, height))
    taken = [[each.pair.name for each in batch] for batch in iter(buckets.take_full, [])]
    assert taken == [["a", "c"]]
    assert buckets.count == 3
    assert buckets.bytes == (5 + 4 + 6) * 12 + 3 * 12
    assert [[each.pair.name for each in batch] for batch in iter(buckets.take_oldest, [])] == [["b"], ["e"], ["d"]]
    assert (buckets.count, buckets.bytes) == (0, 0)


def test_batches_are_made_of_pairs_with_an_image_in_common():
    buckets = Buckets(3)
    for name in ("ab", "cd", "ef", "cg", "ha", "bi"):
        pair = Pair(Path(name[0]), Path(name[1]), name)
        buckets.add(Loaded(pair, {}, np.zeros((2, 2, 3), np.uint8), np.zeros((2, 2, 3), np.uint8)))
    taken = [[each.pair.name for each in batch] for batch in iter(buckets.take_oldest, [])]
    assert taken == [["ab", "ha", "bi"], ["cd", "cg", "ef"]]


def test_images_of_many_pairs_are_read_and_encoded_once(tmp_path, monkeypatch):
    """All pairs of six images of two sizes: one reading of each, and one encoding at each working size."""
    torch.manual_seed(0)
    network = create_model("recurrent-gocor-tiny").eval()
    matching = MatchOptions(min_size=0, align=False, updates=2, confidence="learnt")
    job = Job(model=network.name, batch=2, matching=matching)
    files = [tmp_path / f"{i}.png" for i in range(6)]
    for i, file in enumerate(files):
        write_image(file, picture(*((48, 64), (64, 48))[i // 3], seed=i))
    pairs = [Pair(a, b, f"{a.stem}-{b.stem}") for a, b in combinations(files, 2)]
    encoded, before_pooling = [], network.pyramid.before_pooling
    monkeypatch.setattr(
        network.pyramid, "before_pooling", lambda x, levels: encoded.extend(x.unbind()) or before_pooling(x, levels)
    )
    reads = []
    monkeypatch.setattr(images, "as_picture", lambda path: reads.append(path) or read_image(path))
    worker = Worker(job, FolderStore(tmp_path / "out"), network_match(network, job))
    worker._cache = ImageCache(2**20, images.as_picture)
    assert not any(isinstance(outcome.prepared, Exception) for outcome in worker.run(pairs))
    assert sorted(reads) == files
    # The last three images are queries of references of the other size, too.
    sizes = [tuple(image.shape[1:]) for image in encoded]
    assert (sizes.count((48, 64)), sizes.count((64, 48))) == (6, 3)
    for pair in pairs:
        alone = match_pictures([(read_image(pair.reference), read_image(pair.query))], network, matching)[0]
        np.testing.assert_allclose(read_flow(tmp_path / "out" / pair.name / "flow.flo")[0], alone.flow, atol=1e-3)


def test_features_are_forgotten_when_matching_fails(monkeypatch):
    network = create_model("recurrent-gocor-tiny").eval()
    job = Job(model=network.name, matching=MatchOptions(min_size=0, align=False, updates=1))
    caches, real = [], worker_module.FeatureCache
    monkeypatch.setattr(worker_module, "FeatureCache", lambda limit: caches.append(real(limit)) or caches[0])
    match = network_match(network, job)
    match([(picture(), picture(seed=1))])
    assert caches[0].bytes > 0
    monkeypatch.setattr(network, "match_features", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        match([(picture(), picture(seed=1))])
    assert caches[0].bytes == 0


def test_results_are_those_of_single_pairs(tmp_path):
    pairs, job = make_pairs(tmp_path / "images", 7), make_job(tmp_path)
    network = load_model(job.model, job.weights, device="cpu")
    batches, match = [], network_match(network, job)
    worker = Worker(job, FolderStore(tmp_path / "out"), lambda some: batches.append(len(some)) or match(some))
    outcomes = list(worker.run(pairs))
    assert sorted(outcome.pair.name for outcome in outcomes) == [pair.name for pair in pairs]
    check_folder_store(tmp_path / "out", pairs, job)
    assert sum(batches) == 7
    assert max(batches) == 2  # pairs that are not neighbours in the list
    for pair in pairs:
        alone = match([(worker._cache.get(pair.reference), worker._cache.get(pair.query))])[0]
        np.testing.assert_allclose(read_flow(tmp_path / "out" / pair.name / "flow.flo")[0], alone.flow, atol=1e-4)
    assert set(worker.stages.seconds) == {"decode", "match", "write"}


class Meter(FolderStore):
    """A slow store that counts the pairs that are in work."""

    taken = written = most = 0

    def feed(self, pairs):
        for pair in pairs:
            self.taken += 1
            self.most = max(self.most, self.taken - self.written)
            yield pair

    def prepare(self, pair, result, job, note):
        time.sleep(0.002)
        self.written += 1
        return pair.name


@pytest.mark.parametrize(("limits", "most"), [({}, 4 * 2 + 4 + 2), ({"waiting": 1}, 4 + 2 + 4 + 2)])
def test_memory_does_not_grow_with_the_number_of_pairs(tmp_path, limits, most):
    pairs = make_pairs(tmp_path / "images", 5, sizes=((32, 48),))
    many = [Pair(pair.reference, pair.query, f"{pair.name}-{i}") for i in range(30) for pair in pairs]
    store, job = Meter(tmp_path), make_job(tmp_path)
    bounds = Limits(batches_ahead=4, unwritten=4 * picture().nbytes * 7, readers=2, writers=2, **limits)
    worker = Worker(job, store, fake_match, bounds)
    assert len(list(worker.run(store.feed(many)))) == len(many) == store.written
    assert store.most <= most + 2


def test_bad_pairs_are_reported_and_the_others_go_on(tmp_path):
    pairs, job = make_pairs(tmp_path / "images", 6), make_job(tmp_path)
    pairs[2].query.write_text("not an image")  # it is the reference of the next pair
    pairs[5].query.unlink()

    def match(some):
        if any(np.array_equal(reference, picture(32, 48, 0)) for reference, _ in some):
            raise InputError("no match")
        return fake_match(some)

    outcomes = {o.pair.name: o.prepared for o in Worker(job, FolderStore(tmp_path / "out"), match).run(pairs)}
    failed = {name for name, result in outcomes.items() if isinstance(result, Exception)}
    assert failed == {"pair000", "pair002", "pair003", "pair005"}
    assert isinstance(outcomes["pair005"], FileNotFoundError)
    check_folder_store(tmp_path / "out", [pairs[1], pairs[4]], job)


def test_stopping_early_ends_all_threads(tmp_path):
    pairs, before = make_pairs(tmp_path / "images", 6), threading.active_count()
    run = Worker(make_job(tmp_path), FolderStore(tmp_path / "out"), fake_match).run(pairs)
    next(run)
    run.close()
    assert threading.active_count() == before


def test_images_that_change_while_they_are_matched_make_the_result_outdated(tmp_path):
    pairs, job, store = make_pairs(tmp_path / "images", 1), make_job(tmp_path), FolderStore(tmp_path / "out")

    def match(some):
        pairs[0].query.write_bytes(b"changed")
        return fake_match(some)

    list(Worker(job, store, match).run(pairs))
    assert not store.is_finished(pairs[0], job.note(pairs[0]))
