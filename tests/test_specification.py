"""docs/specification.md says what the code does, and the sections that code and tests cite exist."""

import re
from dataclasses import fields

import pytest
from support.pages import ROOT

from wildctc import CRITERIA, EntropyDecay
from wildctc.corpora.respin import LANGUAGES
from wildctc.criteria import Settings
from wildctc.experiments.catalogue import DAGGER, FLEURS, KAPPAS, SELF_LOOPS, TAUS, WORD_TAUS
from wildctc.training.config import load_recipe
from wildctc.training.divergence import CHECK_EVERY, EPOCHS, MAX_SELF_LOOPS, MAX_SKIPPED, WORSE
from wildctc.training.selection import SELECT
from wildctc.training.settings import Config

PAGE = (ROOT / "docs/specification.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\d+)\. [^\n]+\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def numbers(text: str) -> list[float]:
    return [float(n.replace("−", "-")) for n in re.findall(r"−?\d+(?:\.\d+)?", text)]


def row(section: str, name: str) -> list[str]:
    """The cells of a table's row after the first."""
    (line,) = re.findall(rf"^\| {re.escape(name)}.*\|$", SECTIONS[section], re.MULTILINE)
    return [cell.strip() for cell in line.strip("|").split("|")[1:]]


def after(section: str, words: str) -> list[float]:
    """The numbers of the rest of the sentence."""
    rest = " ".join(SECTIONS[section].split()).partition(words)[2]
    assert rest, words
    return numbers(re.split(r"[;.] |: ", rest)[0])


def test_sections_are_numbered_and_every_citation_leads_to_one():
    assert list(SECTIONS) == [str(n) for n in range(1, len(SECTIONS) + 1)]
    files = [path for folder in ("src", "tests", "benchmarks", "docs", "csrc") for path in (ROOT / folder).rglob("*")]
    texts = [path.read_text(encoding="utf-8") for path in files if path.suffix in {".py", ".md", ".yaml", ".h", ".cpp"}]
    runs = [run for text in texts for run in re.findall(r"[Ss]pecification §\d+(?: (?:and|to) §\d+)*", text)]
    cited = {number for run in runs for number in re.findall(r"§(\d+)", run)}
    assert cited
    assert cited <= SECTIONS.keys()


RATES = {"bypass": "token", "self_loop": "unwritten", "word_bypass": "word"}


def test_the_table_of_criteria_is_the_code():
    rows = re.findall(r"^\| `(.+?)`.*?\|.*?\| (.+?) \| (.+?) \| (.+?) \|$", SECTIONS["6"], re.MULTILINE)
    assert [name for name, *_ in rows] == list(CRITERIA)
    for name, *cells in rows:
        s = CRITERIA[name]
        for family, cell in zip(("bypass", "self_loop", "word_bypass"), cells, strict=True):
            weight, tau = getattr(s, family), getattr(s, f"{family}_tau")
            relaxed = "entropy" if s.schedule == "entropy" else f"{tau:g}"
            if s.schedule == "rates":
                assert cell == ("rate" if RATES[family] in s.families else "–"), (name, family)
                continue
            told = f"{weight or 0:g}" + (f", {relaxed}" if s.schedule in ("epoch", "entropy") else "")
            assert cell.replace("−", "-") == ("–" if weight is None else told), (name, family)


def test_the_penalty_of_stc_is_the_code():
    s = CRITERIA["stc"]
    assert after("6", "Our defaults are") == [s.star, s.star_final, s.star_half]


def test_the_defaults_of_the_entropy_schedule_are_the_code():
    settings = {field.name: field.default for field in fields(Settings)}
    for name in ("alpha", "h_low", "kappa", "eps", "bypass_final", "self_loop_final", "word_bypass_final"):
        assert numbers(row("5", f"`{name}`")[0]) == [settings[name]]
    assert EntropyDecay() == EntropyDecay(*(settings[name] for name in ("alpha", "h_low", "kappa", "eps")))


@pytest.mark.parametrize("entropy", [0.20, 0.10, 0.05, 0.02])
def test_the_weights_at_some_entropies_are_those_of_the_schedule(entropy):
    decay = EntropyDecay()
    decay.first, decay.smooth = 0.7, entropy
    told = re.search(rf"(?:at|H̄ =) {entropy:.2f}[^−]*(−[\d.]+)", " ".join(SECTIONS["5"].split()))
    assert told
    assert decay.weight(-25.0, -0.01) == pytest.approx(numbers(told[1])[0], rel=0.03)


def test_when_a_run_has_diverged_is_the_code():
    rule = SECTIONS["6"].partition("**Divergence**")[2]
    assert f"Every {CHECK_EVERY} steps" in rule
    assert f"{MAX_SKIPPED:.0%} of its tokens" in rule
    # "three epochs", "one … per four frames", "more than twice"
    assert (EPOCHS, MAX_SELF_LOOPS, WORSE) == (3, 1 / 4, 2)
    assert after("6", "is trained again with word bypass")[: len(DAGGER)] == list(DAGGER)


def test_the_settings_of_the_experiments_are_those_of_the_recipes():
    names = [cell.strip("`") for cell in row("8", "recipe")]
    recipes = [load_recipe(name) for name in names]
    assert [[float(r.training.epochs)] for r in recipes] == [numbers(cell) for cell in row("8", "epochs")]
    assert [cell.split()[-1] for cell in row("8", "units")] == ["BPE", "characters", "characters"]
    assert [r.data.units for r in recipes] == ["sentencepiece", "characters", "characters"]
    assert recipes[0].data.vocab_size == numbers(row("8", "units")[0])[0]
    conformer = load_recipe("librispeech-conformer")
    assert after("8", "early stopping with patience") == [conformer.training.patience]
    for recipe in (*recipes, conformer):
        e, o, s = recipe.encoder, recipe.optimizer, recipe.spec_augment
        assert after("8", "Encoder: E-Branchformer with") == [e.blocks, e.d_model, e.heads]
        assert after("8", "speed perturbation with")[:3] == recipe.data.speeds
        assert numbers(row("8", "encoder")[0]) == [e.ff_dim, e.kernel, e.dropout]
        assert numbers(row("8", "optimiser")[0].replace(",000", "000"))[:3] == [o.lr, o.weight_decay, o.warmup_steps]
        masks = numbers(row("8", "SpecAugment")[0])
        assert masks == [s.time_warp, s.freq_width, 100 * s.time_ratio]
        assert (s.freq_masks, s.time_masks) == (2, 5)
        assert numbers(row("8", "averaging")[0]) == [recipe.training.average]
        assert (o.decay, recipe.training.select_by) == ("sqrt", "loss")
    rules = re.findall(r"`([\w+]+)`", SECTIONS["8"].partition("**Selection.** `training.select_by`")[2])
    assert set(rules[:4]) == set(SELECT)
    assert f"The default is `{Config().training.select_by}`" in " ".join(SECTIONS["8"].split())
    assert [r.encoder.subsampling for r in recipes] == [2, 2, 4]


def test_the_languages_and_grids_are_those_of_the_experiments():
    text = " ".join(SECTIONS["8"].split())
    assert f"FLEURS languages: {', '.join(FLEURS)}." in text
    assert f"RESPIN languages: {', '.join(LANGUAGES)}." in text
    assert after("8", "τ of both arcs") == list(TAUS)
    assert numbers(text.partition("; κ ")[2].partition(";")[0]) == list(KAPPAS)
    assert numbers(text.partition("word bypass τ ")[2].partition(", each")[0]) == list(WORD_TAUS)
    loops = numbers(text.partition("self-loops (w₁, τ) ")[2].partition("). ")[0])
    assert loops[:6] == [number for pair in SELF_LOOPS for number in pair]
