"""A model folder that a stranger made: what is wrong in it is one line, in bounded memory and time."""

import json
import os
import random
import resource
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import wildctc
from wildctc.cli import main
from wildctc.errors import WildCTCError
from wildctc.features.trust import check_trusted, memory, remember
from wildctc.recognizer.model import Recognizer
from wildctc.tensor_files import load_tensors, save_tensors
from wildctc.text.normalisation import Normalizer
from wildctc.text.units import CharUnits, SentencePieceUnits

ENCODER = {"kind": "e_branchformer", "d_model": 16, "heads": 2, "blocks": 2, "ff_dim": 32, "kernel": 3}
ENCODER |= {"cgmlp_dim": 32, "merge_kernel": 3, "subsampling": 4, "dropout": 0.1, "macaron": True}
SECONDS, MEGABYTES = 5.0, 200  # that a refusal may take, at most
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model folder with filterbanks and characters."""
    folder = tmp_path_factory.mktemp("made") / "model"
    torch.manual_seed(0)
    Recognizer({"name": "fbank", "num_bins": 40}, ENCODER, CharUnits.train(["abc"], Normalizer())).save(folder)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "model")


def change(folder, **fields):
    """Set dotted fields of config.json."""
    config = json.loads((folder / "config.json").read_text())
    for name, value in fields.items():
        *parents, last = name.split("__")
        place = config
        for parent in parents:
            place = place[parent]
        place[last] = value
    (folder / "config.json").write_text(json.dumps(config))


def refused(folder, **options):
    """The line that refuses a folder, after seeing that it cost little."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(WildCTCError) as caught:
        Recognizer.load(folder, **options)
    assert time.process_time() - start < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEGABYTES * 1000
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 1000
    return line


# ---------------------------------------------------------------------------------------------------------- config.json


BAD = {
    "front_end__num_bins": [10**9, 10**30, 0, -40, "40", [40], None, True, 40.0, 41],
    "front_end__threads_": [1],
    "encoder__blocks": [20_000, 10**9, 10**30, 0, -1, "2", [2], None, True, 2.0, 1, 3],
    "encoder__d_model": [10**6, 10**18, 0, -16, 15, "16", {}, 32],
    "encoder__heads": [0, -2, 3, 4, "2"],
    "encoder__ff_dim": [10**6, 10**12, 0, -32, 31],
    "encoder__cgmlp_dim": [10**6, 0, -2, "x", 64],
    "encoder__kernel": [10**6 - 1, -3, 0, 4, "3", 5],
    "encoder__merge_kernel": [10**6 - 1, -3, 4],
    "encoder__subsampling": [0, 3, 8, "4", [4], {}, True],
    "encoder__subsampling_conv": ["conv1d", "conv3d", [], 1, None],
    "encoder__dropout": [1.0, -0.1, float("nan"), float("inf"), "0.1", None, [0.1], True],
    "encoder__macaron": [False, "yes", 1, None],
    "encoder__kind": ["conformer", "transformer", [], {}, None, 1],
    "encoder__input_dim": [40],
    "encoder__unknown": [1],
    "encoder": [[], None, "conformer", 1, {}],
    "front_end": [[], None, "fbank", 1],
    "units": [None, 1, [], "0000000000000000"],
    "format": [0, 2, "1", None, [], "x" * 100_000],
}


@pytest.mark.parametrize("field", BAD)
def test_a_setting_that_the_weights_do_not_bear_out_is_refused_before_anything_is_built(made, tmp_path, field):
    for number, value in enumerate(BAD[field]):
        folder = shutil.copytree(made, tmp_path / str(number))
        change(folder, **{field: value})
        refused(folder)


@pytest.mark.parametrize(
    "content",
    ["", "{", "null", "[]", "1", "[" * 100_000, '{"a":' * 100_000, "1" * 100_000, " " * 2_000_000, "\ud800", "\x00"],
    ids=range(11),
)
def test_a_configuration_that_is_none_is_refused(folder, content):
    (folder / "config.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    assert "config.json: " in refused(folder)


def test_a_pipe_or_a_device_in_the_place_of_a_file_is_refused(made, tmp_path):
    for number, name in enumerate(("config.json", "units.json")):
        folder = shutil.copytree(made, tmp_path / f"pipe{number}")
        (folder / name).unlink()
        os.mkfifo(folder / name)
        assert "not a file" in refused(folder)
        (folder / name).unlink()
        (folder / name).symlink_to("/dev/zero")
        assert "not a file" in refused(folder)
        (folder / name).unlink()
        (folder / name).mkdir()
        assert "not a file" in refused(folder)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from([10**9, 2, 4, 16]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
PLACES = [("encoder", name) for name in ENCODER] + [("front_end", "num_bins"), ("front_end", "name")]
PLACES += [("front_end", "layers"), ("front_end", "threads"), ("encoder", "attention_dropout"), ("encoder", "x")]
PLACES += [("format",), ("units",), ("encoder",), ("front_end",), ("front_end_digest",)]


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(changes=st.dictionaries(st.sampled_from(PLACES), ANYTHING, min_size=1, max_size=3))
def test_whatever_the_configuration_says_it_loads_or_is_refused_in_one_line(made, tmp_path_factory, changes):
    folder = Path(tmp_path_factory.getbasetemp()) / "anything"
    shutil.copytree(made, folder, dirs_exist_ok=True)
    config = json.loads((made / "config.json").read_text())
    for place, value in changes.items():
        inside = config if len(place) == 1 else config.get(place[0])
        if isinstance(inside, dict):
            inside[place[-1]] = value
    (folder / "config.json").write_text(json.dumps(config))
    loads_or_is_refused(folder)


def loads_or_is_refused(folder):
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    try:
        model = Recognizer.load(folder)
    except WildCTCError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert model.batch_logits([np.zeros((50, 40), np.float32)])[0].isfinite().all()
    assert time.process_time() - start < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEGABYTES * 1000


@pytest.mark.parametrize("name", ["config.json", "units.json", "model.safetensors"])
def test_flipped_bytes_load_or_are_refused_in_one_line(made, tmp_path, name):
    random_ = random.Random(name)
    content = (made / name).read_bytes()
    folder = shutil.copytree(made, tmp_path / "model")
    for _ in range(150):
        changed = bytearray(content)
        for _ in range(random_.choice([1, 1, 2, 8])):
            place = random_.randrange(min(len(changed), 6000))  # the header, in the file of weights
            changed[place : place + random_.choice([0, 1, 1, 3])] = random_.randbytes(random_.choice([0, 1, 1, 2]))
        (folder / name).write_bytes(changed)
        try:
            Recognizer.load(folder)
        except WildCTCError as error:
            assert "\n" not in str(error)  # noqa: PT017


# -------------------------------------------------------------------------------------------------------------- weights


def rewrite(folder, change_weights):
    """Change the weights, and write them as a stranger can: with the checksum that they have now."""
    path = folder / "model.safetensors"
    weights, state = load_tensors(path)
    change_weights(weights)
    save_tensors(path, weights, state)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["output.weight", "mean", "std", "encoder.blocks.1.norm.bias"])
def test_weights_that_are_no_numbers_are_refused(folder, name, value):
    rewrite(folder, lambda weights: weights[name].view(-1)[3:4].fill_(value))
    assert f"{name} holds NaN or infinite numbers" in refused(folder)


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-30])
def test_a_standard_deviation_of_nothing_is_refused(folder, value):
    rewrite(folder, lambda weights: weights["std"][3:4].fill_(value))
    assert "std is less than 1e-06 in some dimension; get the folder again" in refused(folder)


def test_a_negative_variance_is_refused(made, tmp_path):
    torch.manual_seed(0)
    conformer = {name: value for name, value in ENCODER.items() if name not in ("cgmlp_dim", "merge_kernel")}
    units = CharUnits.train(["abc"], Normalizer())
    Recognizer({"name": "fbank", "num_bins": 40}, conformer | {"kind": "conformer"}, units).save(tmp_path)
    assert not Recognizer.load(tmp_path).training
    name = "encoder.blocks.0.convolution.norm.running_var"
    rewrite(tmp_path, lambda weights: weights[name][3:4].fill_(-1.0))
    assert f"{name} is less than 0" in refused(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_weights_of_another_type_are_refused(folder, dtype):
    rewrite(folder, lambda weights: weights.update({"output.bias": weights["output.bias"].to(dtype)}))
    assert "output.bias is of type" in refused(folder)
    assert "only F32 is read; convert the weights" in refused(folder)


def test_weights_with_a_tensor_more_or_less_or_renamed_are_refused(made, tmp_path):
    def renamed(weights):
        weights["encoder.blocks.1.other"] = weights.pop("encoder.blocks.1.norm.bias")

    changes = {
        "more": lambda weights: weights.update(extra=torch.zeros(3)),
        "less": lambda weights: weights.pop("output.bias"),
        "renamed": renamed,
        "transposed": lambda weights: weights.update({"output.weight": weights["output.weight"].T.contiguous()}),
    }
    for name, changed in changes.items():
        folder = shutil.copytree(made, tmp_path / name)
        rewrite(folder, changed)
        assert "the weights do not fit config.json: " in refused(folder)


def test_a_header_of_any_size_is_not_read(folder):
    path = folder / "model.safetensors"
    content = path.read_bytes()
    for size in (2**63, 2**40, 30_000_000):
        path.write_bytes(size.to_bytes(8, "little") + content[8:])
        assert "a header of" in refused(folder)


def test_thousands_of_blocks_in_configuration_and_header_are_refused(folder):
    """Each block has a tensor of its own here, so that only the count of all tensors tells."""
    tensors = {f"encoder.blocks.{n}.norm.bias": torch.zeros(1) for n in range(5000)}
    rewrite(folder, lambda weights: weights.update(tensors))
    change(folder, encoder__blocks=5000)
    assert "the weights do not fit config.json" in refused(folder)


# ---------------------------------------------------------------------------------------------------------------- units


@pytest.mark.parametrize(
    "stored",
    [[], None, "x", 1, {}, {"kind": "char"}, {"kind": "char", "normalizer": [], "tokens": ["<blank>"]}]
    + [{"kind": "char", "normalizer": {"lower": 1}, "tokens": ["<blank>", "a"]}]
    + [{"kind": "char", "normalizer": {"x": True}, "tokens": ["<blank>", "a"]}]
    + [{"kind": kind, "normalizer": {}, "tokens": ["<blank>", "a"]} for kind in ([], {}, None, "other")]
    + [
        {"kind": "char", "normalizer": {"lower": False, "strip_punctuation": False}, "tokens": tokens}
        for tokens in ([], None, "abc", 5, ["a"], ["<blank>", 1], ["<blank>", [1]], ["<blank>", None], {"<blank>": 1})
    ],
)
def test_units_that_are_none_are_refused(folder, stored):
    (folder / "units.json").write_text(json.dumps(stored))
    refused(folder)


def test_a_sentencepiece_model_that_is_none_is_refused(tmp_path):
    torch.manual_seed(0)
    units = SentencePieceUnits.train(["ab abc bca cab"] * 5, Normalizer(), vocab_size=12)
    Recognizer({"name": "fbank", "num_bins": 40}, ENCODER, units).save(tmp_path)
    Recognizer.load(tmp_path)
    model, random_ = (tmp_path / "spm.model").read_bytes(), random.Random(0)
    for _ in range(100):
        changed = bytearray(model)
        changed[random_.randrange(len(changed))] ^= 1 << random_.randrange(8)
        (tmp_path / "spm.model").write_bytes(changed[: random_.choice([len(changed), random_.randrange(len(changed))])])
        refused(tmp_path)


# ------------------------------------------------------------------------------------------------------------ front end


def test_a_front_end_that_is_no_part_of_wildctc_needs_a_yes(folder, tmp_path, capsys, monkeypatch):
    for name in ("hf:somebody/model", "/tmp/theirs.onnx", "theirs.ort", "../theirs", "hf:../theirs", "/dev/zero.onnx"):
        change(folder, front_end__name=name)
        assert f"config.json names the front end {name!r}, which is no part of WildCTC" in refused(folder)
    for command in (["transcribe"], ["decode"], ["align"], ["probe", "-o", str(tmp_path / "out")]):
        assert main([*command, str(folder), str(tmp_path / "a.wav")]) == 2
        assert "if you trust it, give --trust-front-end (in Python trust_front_end=True)" in capsys.readouterr().err
        assert main([*command, str(folder), str(tmp_path / "a.wav"), "--trust-front-end"]) == 2
        assert "cannot read the front end /dev/zero.onnx" in capsys.readouterr().err
    with pytest.raises(WildCTCError, match="names the front end"):
        wildctc.load(folder)
    with pytest.raises(WildCTCError, match=r"cannot read the front end .*; it is named in .*config\.json"):
        wildctc.load(folder, trust_front_end=True)
    monkeypatch.setenv("WILDCTC_TRUST_FRONT_END", "1")
    with pytest.raises(WildCTCError, match="cannot read the front end"):
        wildctc.load(folder)


def test_a_trusted_front_end_with_other_settings_is_still_one_line(folder):
    names = ["x" * 5000, "a\nb", "nul\0", "\ud800", "hf:", "hf:" + "x" * 5000, [1], {}, None, 1, ".", "/"]
    for name in names:
        change(folder, front_end__name=name)
        refused(folder, trust_front_end=True)
    for field, value in {"layers": 1, "threads": 10**9, "unknown": 1}.items():
        change(folder, front_end={"name": "/dev/null.onnx", field: value})
        refused(folder, trust_front_end=True)


def test_a_home_that_cannot_be_written_costs_a_warning(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    with caplog.at_level("WARNING"):
        remember({"name": "hf:me/mine"})
    assert "loading the model will need --trust-front-end" in caplog.text
    with pytest.raises(WildCTCError, match="names the front end 'hf:me/mine'"):
        check_trusted({"name": "hf:me/mine"}, tmp_path)


def test_a_front_end_is_remembered_once_under_its_full_name(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.onnx").touch()
    for name in ("mine.onnx", "fbank", "moonshine-tiny", "moonshine-base", "hf:me/mine", "./mine.onnx", "hf:me/mine"):
        remember({"name": name})
    assert memory().read_text() == f"{tmp_path}/mine.onnx\nhf:me/mine\n"
    check_trusted({"name": f"{tmp_path}/mine.onnx"}, tmp_path)
    check_trusted({"name": "hf:me/mine"}, tmp_path)
    with pytest.raises(WildCTCError):
        check_trusted({"name": "hf:me/min"}, tmp_path)


# ------------------------------------------------------------------------------------------- a run that is not finished


@pytest.mark.parametrize("state", [{"step": [1]}, {}, {"step": 1, "units": []}, {"deep": None}])
def test_a_checkpoint_of_a_stranger_is_checked_as_a_model_is(made, tmp_path, capsys, state):
    run = tmp_path / "run"
    shutil.copytree(made, run / "checkpoints")
    weights, units = load_tensors(run / "checkpoints/model.safetensors")
    (run / "checkpoints/model.safetensors").unlink()
    weights = {f"model.{name}": tensor for name, tensor in weights.items()}
    deep = "deep" in state
    save_file(
        weights, run / "checkpoints/last.safetensors", {"state": "[" * 9999 if deep else json.dumps(units | state)}
    )
    assert main(["decode", str(run), str(tmp_path / "none.jsonl")]) == 2
    assert capsys.readouterr().err.startswith("wildctc: ")
