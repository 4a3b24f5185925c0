"""Every language of the paper's FLEURS systems goes from corpus to score unharmed, whatever its script.

Right to left, combining marks, joiners, letters that have two spellings in Unicode: what is in the manifest is what is
trained on, written and scored, byte for byte, after one normalisation (NFC, single spaces).
"""

import json
import unicodedata

import pytest
import torch
from support.miniatures import fleurs
from support.tones import read_rows, write_rows

from wildctc.cli import main
from wildctc.corpora.manifest import load_manifest
from wildctc.text.units import load_units

# Short, and with what is hard about each script: vowel marks, conjuncts, a ligature (Armenian), joiners that change how
# a word looks (Bengali, Kannada, Malayalam); letters that NFC takes apart (nukta: Bengali, Devanagari, Gurmukhi), and
# letters and marks typed in two parts that it puts together (the others that `test_the_languages…` lists).
TEXTS = {
    "ar_eg": ("ARABIC", ["لُغةٌ \u0627\u0654ولى", "الماءُ والهواء", "أينَ الماء"]),
    "hy_am": ("ARMENIAN", ["ջուր և օդ", "տունը մեծ է", "օդը և տունը"]),
    "bn_in": ("BENGALI", ["সম\u09df হ\u09dfেছে", "ব\u09dc গাছ", "র\u200d্যাম ও গাছ"]),
    "en_us": ("LATIN", ["it's a cafe\u0301", "the air is a sea", "a café is there"]),
    "ka_ge": ("GEORGIAN", ["წყალი და ცა", "სახლი დიდია", "ცა დიდია"]),
    "el_gr": ("GREEK", ["το νερο\u0301 είναι", "ο αέρας", "προϊόν και αέρας"]),
    "gu_in": ("GUJARATI", ["પાણી અને હવા", "ઘર મોટું છે", "સ્ત્રી અને ઘર"]),
    "hi_in": ("DEVANAGARI", ["प\u095dना और लिखना", "\u095bमीन और पानी", "लिखना हिंदी"]),
    "kn_in": ("KANNADA", ["ನೀರು ಮತ್ತು ಗಾಳಿ", "ಮನೆ ದ\u0cc6\u0cc2ಡ್ಡದು", "ರ\u200dಕಾರ ದೊಡ್ಡದು"]),
    "ml_in": ("MALAYALAM", ["വെള്ളം ക\u0d46\u0d3eടി", "അവന്\u200d വന്നു", "വീട് വലുതാണ്"]),
    "pa_in": ("GURMUKHI", ["ਪਾਣੀ ਤੇ ਹਵਾ", "\u0a59ਬਰ ਵੱਡੀ ਹੈ", "\u0a5bਮੀਨ ਤੇ ਪਾਣੀ"]),
    "ru_ru": ("CYRILLIC", ["мои\u0306 дом", "ёлка и мой дом", "дом и воздух"]),
    "ta_in": ("TAMIL", ["நீர் மற்றும் காற்று", "வீடு பெரியது", "க\u0bc6\u0bbeடு நீர்"]),
    "te_in": ("TELUGU", ["నీరు మరియు గాలి", "ఇల్లు పెద్దది", "ప\u0c46\u0c56 గాలి"]),
}
RECIPE = """
data: {dir: data, batch_seconds: 4, workers: 0, cache: features}
features: {name: fbank, num_bins: 40}
encoder:
  {kind: conformer, d_model: 32, heads: 2, blocks: 1, ff_dim: 64, kernel: 5, subsampling_conv: conv1d, dropout: 0.0}
spec_augment: {time_warp: 0, freq_masks: 0, time_masks: 0}
optimizer: {lr: 1.0e-2, warmup_steps: 10, decay: cosine}
training: {epochs: 2, average: 1}
"""


def belongs(char: str, script: str) -> bool:
    """Whether a character is one of the script, or one that scripts share: space, apostrophe, joiners."""
    return char in " '\u200c\u200d" or unicodedata.name(char).startswith(script)


@pytest.mark.slow
@pytest.mark.parametrize("language", TEXTS)
def test_a_language_goes_from_corpus_to_score_unharmed(language, tmp_path, monkeypatch):
    script, texts = TEXTS[language]
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    fleurs(tmp_path / "FLEURS" / language, texts, readers=36)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    assert main(["prepare", "fleurs", "FLEURS", "data", "--language", language]) == 0
    assert main(["train", "recipe.yaml", "--out", "run"]) == 0
    assert main(["decode", "run", "data/test.jsonl.gz", "--workers", "0"]) == 0
    assert main(["score", "run/hyp/test.jsonl", "--json", "score.json"]) == 0

    composed = [unicodedata.normalize("NFC", text) for text in texts]
    for split in ("train", "dev", "test"):
        assert {u.text for u in load_manifest(tmp_path / f"data/{split}.jsonl.gz")} == set(composed)
    units = load_units(tmp_path / "run/model")
    assert [units.decode(units.encode(text)) for text in texts] == composed
    assert sorted(units.tokens[1:]) == sorted(set("".join(composed)))
    rows = read_rows(tmp_path / "run/hyp/test.jsonl")
    assert [row["reference"] for row in rows] == composed
    written = "".join(row["text"] for row in rows)
    assert written == unicodedata.normalize("NFC", written)
    assert [char for char in written if not belongs(char, script)] == []
    assert json.loads((tmp_path / "score.json").read_text())["cer"] < 0.25  # it has really learnt to write the script

    write_rows(tmp_path / "self.jsonl", [row | {"text": row["reference"]} for row in rows])
    assert main(["score", "self.jsonl", "--json", "self.json"]) == 0
    assert json.loads((tmp_path / "self.json").read_text())["cer"] == 0


def test_the_languages_are_those_of_the_paper_with_what_is_hard_about_them():
    papers = "ar_eg hy_am bn_in en_us ka_ge el_gr gu_in hi_in kn_in ml_in pa_in ru_ru ta_in te_in"
    assert list(TEXTS) == papers.split()
    composed = {name: unicodedata.normalize("NFC", "".join(texts)) for name, (_, texts) in TEXTS.items()}
    marked = [name for name, text in composed.items() if any(unicodedata.category(char)[0] == "M" for char in text)]
    assert marked == ["ar_eg", "bn_in", "gu_in", "hi_in", "kn_in", "ml_in", "pa_in", "ta_in", "te_in"]
    assert {unicodedata.bidirectional(char) for char in TEXTS["ar_eg"][1][0]} >= {"AL", "NSM"}
    changed = [name for name, (_, texts) in TEXTS.items() if "".join(texts) != composed[name]]
    assert changed == [name for name in TEXTS if name not in ("hy_am", "ka_ge", "gu_in")]  # which have no such letters
