"""`gocor train` as a Ray Train job: every worker of a Ray cluster takes its share of each batch.

    pip install 'gocor[ray]' 'ray[train]'
    python examples/ray_train.py --data MY_PHOTOS --model basenet-gocor --workers 2 -o /shared/runs/mine

The folders of the photos and of the run must be the same on all nodes. `--resume` continues an interrupted run, and
`--address` names a cluster; by default one is started on this machine. Options other than these are given as
`--set KEY=VALUE`, as to `gocor train`.
"""

import argparse
import os
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # Ray reports nothing to its makers


def train_share(settings: dict[str, Any]) -> None:
    """What each worker runs. Ray Train has joined the processes already; `gocor` takes rank and size from there."""
    import torch.distributed as dist

    from gocor.training import make_config, train

    os.environ["WORLD_SIZE"] = str(dist.get_world_size())
    train(make_config(settings["options"]), resume=settings["resume"], quiet=dist.get_rank() != 0)


def main(arguments: list[str] | None = None) -> None:
    """Start the job and wait for its end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of photos")
    parser.add_argument("--model", default="basenet-gocor")
    parser.add_argument("-o", "--output", required=True, help="folder of the run")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--address", default="local", help="of a Ray cluster")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--set", dest="assignments", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args(arguments)

    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    from gocor.training.config import parse_assignment

    settings = {"data": [str(Path(options.data).absolute())], "model": options.model}
    settings |= {"output": str(Path(options.output).absolute())}
    settings |= dict(parse_assignment(text) for text in options.assignments)
    local = options.address == "local"
    own = {"num_cpus": options.workers + 1, "include_dashboard": False} if local else {}
    ray.init(address=options.address, logging_level="error", **own)
    try:
        gpus = ray.cluster_resources().get("GPU", 0) >= options.workers
        trainer = TorchTrainer(
            train_share,
            train_loop_config={"options": settings, "resume": options.resume},
            scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=gpus),
            run_config=RunConfig(storage_path=str(Path(options.output).absolute() / "ray")),
        )
        trainer.fit()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
