"""`wildctc export`."""

from __future__ import annotations

import argparse

from wildctc.commands.options import Add, add_trust_option


def register(add: Add) -> None:
    p = add("export", run, "Write a model as one ONNX file, for sherpa-onnx, onnx-asr and ONNX Runtime.")
    p.add_argument("run_folder", metavar="RUN", help="a run's folder, or a model folder")
    p.add_argument("--onnx", metavar="DIR", required=True, help="folder for model.onnx, tokens.txt and config.json")
    p.add_argument("--wave", action="store_true", help="begin with the wave, not with features (only with fbank)")
    p.add_argument("--int8", action="store_true", help="write model.int8.onnx too, with 8-bit weights")
    p.add_argument("--onnx-asr", action="store_true", help="write the files of onnx-asr too, to DIR/onnx-asr")
    p.add_argument("--overwrite", action="store_true", help="replace an export in DIR")
    add_trust_option(p)


def run(options: argparse.Namespace) -> None:
    from wildctc.recognizer.model import Recognizer
    from wildctc.recognizer.onnx_export import export_onnx

    model = Recognizer.load(options.run_folder, trust_front_end=options.trust_front_end)
    which = {"wave": options.wave, "int8": options.int8, "onnx_asr": options.onnx_asr}
    difference = export_onnx(model, options.onnx, **which, overwrite=options.overwrite)
    begins = "the wave" if options.wave else f"features of {model.front_end.name}"
    print(f"{options.onnx}: from {begins} to log-probabilities of {len(model.units)} units")
    print(f"largest difference to PyTorch on noise: {difference:.1e}")
