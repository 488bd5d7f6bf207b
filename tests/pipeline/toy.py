"""Small pairs, jobs and stores."""

import json
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import torch

from gocor.data.io import write_image
from gocor.matching.files import read_done
from gocor.matching.options import MatchOptions
from gocor.matching.result import MatchResult
from gocor.models import create_model, save_model
from gocor.pipeline.job import Job
from gocor.pipeline.pairs import Pair

MODEL = "pwcnet-gocor-tiny"


def picture(height=32, width=48, seed=0):
    noise = np.random.default_rng(seed).uniform(0, 255, (height, width, 3)).astype(np.float32)
    return cv2.GaussianBlur(noise, (0, 0), 2).clip(0, 255).astype(np.uint8)


def make_pairs(folder: Path, count: int, *, sizes=((32, 48), (40, 32))) -> list[Pair]:
    """Pairs of neighbouring images, of two sizes, with a list of them in pairs.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{i}.png" for i in range(count + 1)]
    for i, file in enumerate(files):
        write_image(file, picture(*sizes[i // 2 % len(sizes)], seed=i))
    pairs = [Pair(a, b, f"pair{i:03}") for i, (a, b) in enumerate(pairwise(files))]
    rows = "".join(f"{pair.reference.name},{pair.query.name},{pair.name}\n" for pair in pairs)
    (folder / "pairs.csv").write_text("reference,query,name\n" + rows)
    return pairs


def make_job(folder: Path, **options) -> Job:
    """A job whose network has the same weights in every process."""
    weights = folder / "weights.safetensors"
    if not weights.exists():
        torch.manual_seed(0)
        save_model(create_model(MODEL), weights)
    defaults = {"model": MODEL, "weights": str(weights), "batch": 2, "matching": MatchOptions(iters_local=1)}
    return Job(**defaults | options)


def fake_match(pairs):
    """Results without a network: the flow is the mean of the query."""
    results = []
    for reference, query in pairs:
        size = reference.shape[:2]
        flow = torch.full((2, *size), float(query.mean()))
        results.append(MatchResult(reference, query, flow, torch.ones(size), torch.zeros(size, dtype=torch.bool)))
    return results


def check_folder_store(root: Path, pairs, job) -> None:
    """Every pair is there once and whole, and nothing else is."""
    assert sorted(path.name for path in root.iterdir()) == sorted(pair.name for pair in pairs)
    for pair in pairs:
        done = read_done(root / pair.name)
        expected = json.loads(json.dumps(job.note(pair)))
        assert {key: done.get(key) for key in expected} == expected, pair.name
        height, width = done["reference_size"]
        assert (root / pair.name / "flow.flo").stat().st_size == 12 + 8 * height * width
        assert len((root / pair.name / "matches.csv").read_text().splitlines()) == done["matches"] + 1
