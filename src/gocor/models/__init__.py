"""The paper's networks, with and without GOCor."""

from .basenet import BaseNet
from .glunet import GLUNet
from .network import MatchingNetwork
from .pwcnet import PWCNet
from .registry import create_model, list_models, register
from .weights import UntrainedWarning, convert, load_model, load_weights, save_model

__all__ = [
    "BaseNet",
    "GLUNet",
    "MatchingNetwork",
    "PWCNet",
    "UntrainedWarning",
    "convert",
    "create_model",
    "list_models",
    "load_model",
    "load_weights",
    "register",
    "save_model",
]
