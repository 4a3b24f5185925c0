"""A folder of Hugging Face that a stranger made: none of its code runs, neither Python beside it nor a pickle in it."""

import json
import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.miniatures import tiny_model

transformers = pytest.importorskip("transformers")

from support.tiny_hf import make_checkpoint  # noqa: E402

from wildctc.errors import WildCTCError  # noqa: E402
from wildctc.features.hf_front_end import HuggingFaceFrontEnd  # noqa: E402
from wildctc.recognizer.hf_checkpoint import Checkpoint  # noqa: E402

ROOT = Path(__file__).parents[2]
CODE = """
from pathlib import Path
Path({proof!r}).write_text("ran")
class Config: pass
"""


def front_end(folder):
    return HuggingFaceFrontEnd(folder).extract(np.zeros(16000, np.float32))


READERS = {"front end": (front_end, "hubert"), "checkpoint": (Checkpoint, "ctc")}
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {"hubert": tiny_model(folder / "hubert", "hubert"), "ctc": make_checkpoint(folder / "ctc")}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("known", [True, False])
def test_python_beside_the_weights_does_not_run_and_nobody_is_asked(models, tmp_path, monkeypatch, reader, known):
    asked = []
    monkeypatch.setattr("builtins.input", lambda *words: asked.append(words) or "y")
    read, name = READERS[reader]
    folder = shutil.copytree(models[name], tmp_path / "model")
    (folder / "theirs.py").write_text(CODE.format(proof=str(tmp_path / "proof")))
    autos = ("AutoConfig", "AutoModel", "AutoModelForCTC", "AutoFeatureExtractor", "AutoTokenizer")
    for file in ("config.json", "preprocessor_config.json", "tokenizer_config.json"):
        if (folder / file).exists():
            settings = json.loads((folder / file).read_text())
            settings["auto_map"] = dict.fromkeys(autos, "theirs.Config")
            if file == "config.json" and not known:
                settings["model_type"] = "of_its_own"
            (folder / file).write_text(json.dumps(settings))
    if known:
        read(folder)  # a kind that transformers knows: transformers' code is taken instead
    else:
        with pytest.raises(WildCTCError) as caught:
            read(folder)
        assert "\n" not in str(caught.value)
    assert not asked
    assert not (tmp_path / "proof").exists()


class Bomb:
    def __init__(self, proof):
        self.proof = proof

    def __reduce__(self):
        return Path.write_text, (Path(self.proof), "ran")


@pytest.mark.parametrize("reader", READERS)
def test_a_pickle_in_the_place_of_weights_is_not_run(models, tmp_path, reader):
    read, name = READERS[reader]
    folder = shutil.copytree(models[name], tmp_path / "model")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Bomb(str(tmp_path / "proof"))}, protocol=2))
    with pytest.raises(WildCTCError) as caught:
        read(folder)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "proof").exists()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "content",
    ["{", "[]", "null", "[" * 100_000, '{"model_type": []}', '{"model_type": "wav2vec2", "conv_dim": "x"}'],
    ids=lambda text: text[:20],
)
def test_settings_that_are_none_are_one_line(models, tmp_path, reader, content):
    read, name = READERS[reader]
    folder = shutil.copytree(models[name], tmp_path / "model")
    (folder / "config.json").write_text(content)
    with pytest.raises(WildCTCError) as caught:
        read(folder)
    assert "\n" not in str(caught.value)


def test_every_from_pretrained_of_ours_refuses_remote_code():
    calls = 0
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "examples").rglob("*.py"), *(ROOT / "docs").rglob("*.md")]:
        for call in re.findall(r"from_pretrained\(([^)]*)\)", path.read_text(encoding="utf-8")):
            calls += 1
            assert "trust_remote_code=False" in call or "**_LOCAL" in call, f"{path}: from_pretrained({call})"
    assert calls >= 8
