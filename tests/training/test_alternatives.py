"""Training on transcripts with alternatives: every criterion, characters and SentencePiece, resuming."""

import math

import pytest
import torch
from support.tones import make_corpus, read_rows, write_rows

from wildctc import CRITERIA, Criterion
from wildctc.cli import main
from wildctc.corpora.manifest import load_manifest
from wildctc.lattice.arcs import Wildcards
from wildctc.lattice.feasibility import infeasible
from wildctc.lattice.functional import wildcard_ctc_loss, wildcard_posteriors
from wildctc.lattice.graph_noise import graph_noise_counts
from wildctc.lattice.transcripts import TranscriptGraph
from wildctc.rate_table import RateTable
from wildctc.training import reports
from wildctc.training.batches import Batches
from wildctc.training.config import load_recipe
from wildctc.training.loop import Trainer
from wildctc.training.noise import CountedArcs
from wildctc.training.run_folder import read_metrics

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    monkeypatch.setattr(reports, "draw_curves", lambda history: b"")


@pytest.fixture
def recipe(tmp_path):
    """Two of three transcripts have a wrong alternative, and every fourth a word that may be left out."""
    recipe = make_corpus(tmp_path / "tones", {"train": 20, "dev": 6})
    for split, size in (("train", 6), ("dev", 2)):
        rows = sorted(read_rows(recipe.parent / f"{split}.jsonl"), key=lambda row: len(row["text"]))
        rows = [*rows[: size - 1], next(row for row in rows if " " in row["text"])]  # short: this is the slow backend
        for n, row in enumerate(rows):
            row["id"] = f"{split}{n}"
            first, *rest = row["text"].split()
            if n % 3:
                row["text"] = " ".join([f"{{{first}|fa}}", *rest])
            if n % 4 == 3:
                row["text"] = "{ab|} " + row["text"]
        write_rows(recipe.parent / f"{split}.jsonl", rows)
    return recipe


def go(recipe, run, *more, criterion="otc-tw", epochs=1):
    words = f"--training.epochs {epochs} --data.workers 0 --training.checkpoint_steps 1 --criterion {criterion}"
    return main(["train", str(recipe), "--out", str(run), *words.split(), *more])


def model(run) -> bytes:
    return (run / "model/model.safetensors").read_bytes()


def make_trainer(recipe, run, **settings):
    config = load_recipe(str(recipe))
    config.data.workers = 0
    for name, value in settings.items():
        setattr(config.data, name, value)
    run.mkdir()
    return Trainer(config, run)


@pytest.mark.slow
@pytest.mark.parametrize("criterion", CRITERIA)
def test_every_criterion_trains(recipe, tmp_path, criterion):
    words = ("--schedule.h_low", "0.1") if Criterion(criterion).needs_entropy else ()
    assert go(recipe, tmp_path / "run", *words, criterion=criterion) == 0
    [metrics] = read_metrics(tmp_path / "run")
    assert all(math.isfinite(metrics[name]) for name in ("train_loss", "valid_loss", "valid_wer"))


@pytest.mark.slow
def test_pieces_train_too(recipe, tmp_path):
    assert go(recipe, tmp_path / "run", "--data.units", "sentencepiece", "--data.vocab_size", "20") == 0


def test_the_loss_of_a_batch_is_that_of_each_graph(recipe, tmp_path):
    trainer = make_trainer(recipe, tmp_path / "run")
    batches = Batches(trainer.steps.examples, [list(range(6))], trainer.cache, trainer.stats)
    batch = batches.batch(0)
    assert batch.graphs is not None
    logits = torch.randn(60, 6, len(trainer.model.units), generator=torch.Generator().manual_seed(0))
    lengths = torch.full((6,), 60)
    wildcards = Criterion("otc-tw").wildcards
    found = wildcard_ctc_loss(logits, input_lengths=lengths, reduction="sum", wildcards=wildcards, **batch.transcripts)
    each = [
        wildcard_ctc_loss(logits[:, n : n + 1], [graph], [60], reduction="sum", wildcards=wildcards)
        for n, graph in enumerate(batch.graphs)
    ]
    assert float(found) == pytest.approx(float(sum(each)), rel=1e-5)
    for example, graph in zip(trainer.steps.examples, batch.graphs, strict=True):
        if example.graph is None:
            assert graph.is_chain
            assert [arc.label for arc in graph.arcs] == example.tokens


def test_the_expected_counts_of_noise_are_the_posteriors_of_the_arcs(recipe, tmp_path):
    trainer = make_trainer(recipe, tmp_path / "run")
    batch = Batches(trainer.steps.examples, [list(range(6))], trainer.cache, trainer.stats).batch(0)
    table = RateTable(["token", "unwritten", "word"], start=0.1)
    arcs = CountedArcs(table, batch)
    logits = torch.randn(60, 6, len(trainer.model.units), generator=torch.Generator().manual_seed(0))
    loss = wildcard_ctc_loss(logits, batch.graphs, [60] * 6, reduction="sum", **arcs.arcs) / 3
    loss.backward()
    arcs.count(3)
    wanted = wildcard_ctc_loss(logits, batch.graphs, [60] * 6, reduction="sum", wildcards=table.noise())
    assert float(3 * loss.detach()) + arcs.constant == pytest.approx(float(wanted), rel=1e-5)
    post = wildcard_posteriors(logits.double(), batch.graphs, [60] * 6, wildcards=table.noise())
    counts = graph_noise_counts(post.token, post.bypass, post.self_loop, post.word_bypass, batch.graphs)
    for i, pair in enumerate(counts):
        assert [float(table.events[i]), float(table.chances[i])] == pytest.approx([float(x.sum()) for x in pair], 1e-4)


def test_weights_of_words_reach_utterances_without_alternatives_in_the_same_batch(recipe, tmp_path):
    rows = read_rows(recipe.parent / "train.jsonl")
    plain = next(row for row in rows if "{" not in row["text"])
    plain["text"] += " ab"
    plain["weights"] = [0.5 + n for n in range(len(plain["text"].split()))]
    write_rows(recipe.parent / "train.jsonl", rows)
    trainer = make_trainer(recipe, tmp_path / "run")
    batch = Batches(trainer.steps.examples, [list(range(6))], trainer.cache, trainer.stats).batch(0)
    found = batch.weigh(Wildcards(bypass=-3.0, word_bypass=-4.0))
    n = batch.ids.index(plain["id"])
    words = plain["text"].split()
    expected = [plain["weights"][i] - 3 for i, word in enumerate(words) for _ in word + " " * (i > 0)]
    assert found.bypass[n, : len(expected)].tolist() == expected
    assert found.word_bypass[n, : len(words)].tolist() == [w - 4 for w in plain["weights"]]
    others = [m for m in range(6) if m != n]
    assert (found.bypass[others] == -3).all()
    graphs = batch.graphs
    loss = wildcard_ctc_loss(torch.randn(60, 6, 9), graphs, [60] * 6, wildcards=found)
    assert loss.isfinite()


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["otc-tw", "otc-tw-em"])
def test_a_run_that_was_stopped_resumes_to_the_same_bits(recipe, tmp_path, monkeypatch, criterion):
    assert go(recipe, tmp_path / "whole", criterion=criterion, epochs=2) == 0
    steps, step = [0], Trainer._step

    def stop_after_two(self, *arguments):
        steps[0] += 1
        if steps[0] == 3:
            raise KeyboardInterrupt
        return step(self, *arguments)

    monkeypatch.setattr(Trainer, "_step", stop_after_two)
    assert go(recipe, tmp_path / "parts", criterion=criterion, epochs=2) != 0
    monkeypatch.setattr(Trainer, "_step", step)
    assert go(recipe, tmp_path / "parts", criterion=criterion, epochs=2) == 0
    assert model(tmp_path / "parts") == model(tmp_path / "whole")


@pytest.mark.slow
def test_data_that_has_changed_is_noticed_when_a_run_resumes(recipe, tmp_path, capsys):
    variants = tmp_path / "variants.txt"
    variants.write_text("fa cafe\n")
    assert go(recipe, tmp_path / "run", "--data.variants", str(variants)) == 0
    variants.write_text("fa deaf\n")
    assert go(recipe, tmp_path / "run", "--data.variants", str(variants), epochs=2) == 2
    assert "the data has changed" in capsys.readouterr().err


def test_several_transcripts_by_manifest_or_by_file_are_the_same_graphs(recipe, tmp_path):
    rows = [{**row, "text": row["text"].replace("{", "").split("|")[0].replace("}", "")} for row in
            read_rows(recipe.parent / "train.jsonl")]  # fmt: skip
    other = {row["id"]: " ".join([*row["text"].split()[:-1], "face"]) for row in rows}
    write_rows(recipe.parent / "dev.jsonl", [{**row, "text": "bad"} for row in read_rows(recipe.parent / "dev.jsonl")])
    write_rows(recipe.parent / "train.jsonl", rows)
    write_rows(tmp_path / "also.jsonl", [{"id": id, "text": text} for id, text in other.items()])
    by_file = make_trainer(recipe, tmp_path / "one", also=str(tmp_path / "also.jsonl"))
    several = [{**row, "texts": {"ann": row["text"], "ben": other[row["id"]]}} for row in rows]
    for row in several:
        del row["text"]
    write_rows(recipe.parent / "train.jsonl", several)
    by_field = make_trainer(recipe, tmp_path / "two")
    assert [str(e.graph) for e in by_field.steps.examples] == [str(e.graph) for e in by_file.steps.examples]
    assert any(e.graph is not None for e in by_field.steps.examples)
    assert all(a.weight == 0 for e in by_field.steps.examples if e.graph for a in e.graph.arcs)
    by_share = make_trainer(recipe, tmp_path / "three", texts="shares")
    weights = {a.weight for e in by_share.steps.examples if e.graph for a in e.graph.arcs}
    assert weights == {0.0, math.log(0.5)}


def test_units_know_the_letters_of_every_alternative(recipe, tmp_path):
    variants = tmp_path / "variants.txt"
    variants.write_text("fa xyz\n")
    trainer = make_trainer(recipe, tmp_path / "run", variants=str(variants))
    assert {"x", "y", "z"} <= set(trainer.model.units.tokens)


@pytest.mark.slow
def test_an_utterance_fits_if_one_of_its_writings_does(recipe, tmp_path, capsys):
    rows = read_rows(recipe.parent / "train.jsonl")
    long = " ".join(["abcdef"] * 9)
    rows[0]["text"] = f"{{{long}|bad}}"
    rows[1]["text"] = f"{{{long}|{long} bad}}"
    write_rows(recipe.parent / "train.jsonl", rows)
    assert go(recipe, tmp_path / "run", "--data.max_bad", "0.2") == 0
    [reason] = [line for line in capsys.readouterr().err.splitlines() if "too long for its audio" in line]
    assert rows[1]["id"] in reason
    assert "needs 62 frames" in reason


def test_the_frames_that_a_graph_needs_are_the_fewest_with_a_finite_loss():
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        draw = lambda most: int(torch.randint(0, most, (), generator=generator))  # noqa: E731
        slots = [[[1 + draw(2) for _ in range(draw(3))] for _ in range(1 + draw(3))] for _ in range(1 + draw(4))]
        if all(() in map(tuple, slot) for slot in slots):
            continue
        graph = TranscriptGraph.from_slots(slots)
        needed = infeasible([graph], [0])[0].needed
        for frames, finite in ((needed, True), (needed - 1, False)):
            loss = wildcard_ctc_loss(torch.zeros(max(frames, 0), 1, 3), [graph], [max(frames, 0)], reduction="sum")
            assert bool(loss.isfinite()) == finite


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "a {b|c"}, "train.jsonl:3: utterance train2: text, column 3: { is not closed"),
        ({"texts": ["a", "b }"]}, "train.jsonl:3: utterance train2: text 2, column 3: } without {"),
        ({"texts": []}, "train.jsonl:3: field 'texts' is neither a list of texts nor an object"),
        ({"texts": ["a", 1]}, "train.jsonl:3: field 'texts' is neither a list of texts nor an object"),
        ({"texts": ["a", "{b|c} d"]}, "utterance train2: transcript 2 of 2 has alternatives in braces"),
    ],
)
def test_a_wrong_transcript_is_named_with_line_utterance_and_column(recipe, tmp_path, capsys, row, message):
    rows = read_rows(recipe.parent / "train.jsonl")
    rows[2] = {"id": rows[2]["id"], "audio": rows[2]["audio"], **row}
    write_rows(recipe.parent / "train.jsonl", rows)
    assert go(recipe, tmp_path / "run") == 2
    assert message in capsys.readouterr().err


def test_a_dry_run_knows_alternatives(recipe, capsys):
    assert main(["train", str(recipe), "--dry-run", "--data.workers", "0", "--criterion", "otc-tw"]) == 0
    assert "6 training utterances" in capsys.readouterr().out


def test_prepare_keeps_alternatives_and_annotators(recipe, tmp_path):
    rows = read_rows(recipe.parent / "train.jsonl")
    rows[0] = {**rows[0], "text": "A {Bad,|dad}!", "texts": {"ann": "Bad, cafe", "ben": "{bad|dad}"}}
    write_rows(recipe.parent / "train.jsonl", rows)
    words = ["prepare", "jsonl", str(recipe.parent), str(tmp_path / "out"), "--lower", "--strip-punctuation"]
    assert main(words) == 0
    found = next(u for u in load_manifest(tmp_path / "out/train.jsonl.gz") if u.id == rows[0]["id"])
    assert found.text == "a {bad|dad}"
    assert (found.texts, found.annotators) == (("bad cafe", "{bad|dad}"), ("ann", "ben"))


def test_prepare_makes_texts_of_several_fields(recipe, tmp_path, capsys):
    rows = [{**row, "text": "bad", "machine": "bed {cafe|face}"} for row in read_rows(recipe.parent / "train.jsonl")]
    rows[0] |= {"machine": "bad"}
    rows[1] |= {"machine": None}
    write_rows(recipe.parent / "train.jsonl", rows)
    (recipe.parent / "dev.jsonl").unlink()
    words = ["prepare", "jsonl", str(recipe.parent), str(tmp_path / "out"), "--text-field"]
    assert main([*words, "text,machine", "--max-bad", "0.5"]) == 0
    out = capsys.readouterr().out
    assert "U+007B" not in out  # a brace is no character of the corpus
    found = load_manifest(tmp_path / "out/train.jsonl.gz")
    assert (found[1].text, found[1].texts) == ("bad", ("bad", "bed {cafe|face}"))
    assert found[1].annotators == ("text", "machine")
    assert len(found) == 5  # one row has no text of the machine
    assert main([*words, "text,nobody"]) == 2
    assert "no field 'nobody'" in capsys.readouterr().err


def test_errors_are_not_put_into_alternatives(recipe, tmp_path, capsys):
    words = ["corrupt", str(recipe.parent / "train.jsonl"), "-o", str(tmp_path / "out.jsonl"), "--words", "0.5"]
    assert main(words) == 2
    assert "train1 has alternatives" in capsys.readouterr().err
    rows = [{**row, "text": "bad cafe"} for row in read_rows(recipe.parent / "train.jsonl")]
    write_rows(recipe.parent / "train.jsonl", rows)
    assert main(words) == 0
    assert len(load_manifest(tmp_path / "out.jsonl")) == 6


def test_a_file_of_other_utterances_is_refused(recipe, tmp_path, capsys):
    write_rows(tmp_path / "also.jsonl", [{"id": "nobody", "text": "bad"}])
    assert go(recipe, tmp_path / "run", "--data.also", str(tmp_path / "also.jsonl")) == 2
    assert "also.jsonl: it has none of the utterances, such as 'train0'" in capsys.readouterr().err
