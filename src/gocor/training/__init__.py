"""Training of the networks: `gocor train`, or in Python `train(make_config({...}))`."""

from .config import TrainConfig, make_config
from .loop import train
from .run import Outcome

__all__ = ["Outcome", "TrainConfig", "make_config", "train"]
