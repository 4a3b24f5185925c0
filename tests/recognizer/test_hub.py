"""Models on the Hugging Face hub: huggingface_hub's own client talks to a small hub on this machine."""

import base64
import http.server
import json
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import wildctc
from wildctc.errors import WildCTCError
from wildctc.features.stats import FeatureStats
from wildctc.recognizer.hub import FILES, is_hub_name
from wildctc.recognizer.model import Recognizer
from wildctc.text.normalisation import Normalizer
from wildctc.text.units import CharUnits

pytest.importorskip("huggingface_hub")
pytestmark = pytest.mark.usefixtures("one_thread")
COMMIT = "0" * 40


class Hub(http.server.BaseHTTPRequestHandler):
    """Takes one commit: the requests of which the hub's client makes an upload."""

    files: dict = {}  # noqa: RUF012 (one for each server)

    def do_POST(self):
        body = self.body()
        if self.path == "/api/repos/create":
            answer = {"url": "https://huggingface.co/ann/tones"}
        elif "/preupload/" in self.path:
            answer = {"files": [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in json.loads(body)["files"]
            ]}  # fmt: skip
        elif self.path == "/api/validate-yaml":
            answer = {"errors": [], "warnings": []}
        else:
            rows = [json.loads(line) for line in body.splitlines()]
            for row in (r["value"] for r in rows if r["key"] == "file"):
                self.files[row["path"]] = base64.b64decode(row["content"])
            answer = {"commitUrl": f"https://huggingface.co/ann/tones/commit/{COMMIT}", "commitOid": COMMIT}
        self.answer(answer)

    def body(self):
        if "Content-Length" in self.headers:
            return self.rfile.read(int(self.headers["Content-Length"]))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        return b"".join(chunks)

    def do_GET(self):
        self.answer({"id": "ann/tones", "sha": COMMIT, "siblings": []})

    do_HEAD = do_GET

    def answer(self, content):
        text = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    encoder = {"kind": "conformer", "d_model": 16, "heads": 2, "blocks": 1, "ff_dim": 16, "subsampling": 2}
    stats = FeatureStats(np.zeros(20, np.float32), np.ones(20, np.float32))
    return Recognizer({"name": "fbank", "num_bins": 20}, encoder, CharUnits.train(["ab c"], Normalizer()), stats).eval()


@pytest.fixture(scope="module")
def pushed(model):
    """What the hub has after a push."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = model.push_to_hub("ann/tones", token="hf_none", endpoint=f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()
    return address, dict(Hub.files)


def test_a_push_sends_the_files_of_the_model_folder_and_no_pickle(pushed):
    address, files = pushed
    assert address.endswith("ann/tones")
    assert {"config.json", "units.json", "model.safetensors", "README.md"} <= files.keys() <= {*FILES, ".gitattributes"}
    assert "pipeline_tag: automatic-speech-recognition" in files["README.md"].decode()


@pytest.mark.slow
def test_load_reads_a_pushed_model_by_its_name(pushed, model, tmp_path):
    repository = tmp_path / "hub" / "models--ann--tones"  # as huggingface_hub keeps what it has fetched
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    for name, content in pushed[1].items():
        (snapshot / name).write_bytes(content)
    code = "import wildctc; print(wildctc.load('ann/tones').fingerprint())"
    environment = {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.stdout.strip() == model.fingerprint(), done.stderr


def test_a_folder_that_exists_is_never_looked_up(model, tmp_path, monkeypatch):
    model.save(tmp_path / "ann" / "tones")
    monkeypatch.chdir(tmp_path)
    assert not is_hub_name("ann/tones")
    assert wildctc.load("ann/tones").fingerprint() == model.fingerprint()


def test_a_name_that_is_neither_a_folder_nor_on_the_hub_is_one_line(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(WildCTCError, match="runs/nothing: there is no such folder here, and the Hugging Face hub") as e:
        wildctc.load("runs/nothing")
    assert "\n" not in str(e.value)


def test_a_hub_that_cannot_be_reached_is_one_line(model):
    with pytest.raises(WildCTCError, match="did not take the model") as caught:
        model.push_to_hub("ann/tones", token="hf_none", endpoint="http://127.0.0.1:9")
    assert "\n" not in str(caught.value)


def test_a_front_end_of_this_machine_is_not_published(model, tmp_path, monkeypatch):
    (tmp_path / "mine.onnx").touch()
    monkeypatch.setattr(model, "front_end_config", {"name": str(tmp_path / "mine.onnx")})
    with pytest.raises(WildCTCError, match="nobody else has"):
        model.push_to_hub("ann/tones")
