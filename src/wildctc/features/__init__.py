"""Features: a filterbank or a frozen pretrained front end, cached on disk, and how they are varied for training.

A front end turns a wave into frames and is never trained, so each utterance goes through it once for every speed; what
comes out is kept on disk. Masking and warping (SpecAugment) act on the frames, whichever front end made them.
"""

from .augment import spec_augment
from .cache import FeatureCache
from .fbank import Fbank
from .front_end import FrontEnd, make_front_end, with_absolute_path
from .huggingface import HuggingFaceFrontEnd
from .layers import LayerMix
from .onnx import OnnxFrontEnd
from .stats import FeatureStats

__all__ = [
    "Fbank",
    "FeatureCache",
    "FeatureStats",
    "FrontEnd",
    "HuggingFaceFrontEnd",
    "LayerMix",
    "OnnxFrontEnd",
    "make_front_end",
    "spec_augment",
    "with_absolute_path",
]
