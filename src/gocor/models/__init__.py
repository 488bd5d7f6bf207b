"""Matching networks: those of the paper, with and without GOCor, and a recurrent network on GOCor filters."""

from .basenet import BaseNet
from .glunet import GLUNet
from .network import MatchingNetwork
from .pwcnet import PWCNet
from .recurrent import RecurrentNet
from .registry import create_model, list_models, register
from .weights import UntrainedWarning, convert, load_model, load_weights, save_model

__all__ = [
    "BaseNet",
    "GLUNet",
    "MatchingNetwork",
    "PWCNet",
    "RecurrentNet",
    "UntrainedWarning",
    "convert",
    "create_model",
    "list_models",
    "load_model",
    "load_weights",
    "register",
    "save_model",
]
