"""`wildctc prepare`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wildctc.commands.options import Add, add_limit_option, add_text_options, normalizer
from wildctc.cores import available_cores

_SOURCES = (
    "jsonl", "csv", "kaldi", "audiofolder", "huggingface", "librispeech", "common-voice", "ljspeech", "fleurs",
    "respin", "webdataset", "nemo-tarred", "wenet", "synthetic",
)  # fmt: skip


def register(add: Add) -> None:
    p = add("prepare", run, "Turn a corpus into manifests: OUT/{train,dev,test}.jsonl.gz.")
    names = f"{', '.join(_SOURCES[:-1])} or {_SOURCES[-1]}"
    p.add_argument("source", metavar="SOURCE", choices=_SOURCES, help=names)
    p.add_argument(
        "input", metavar="IN", help="the corpus's folder (jsonl, csv: or file; synthetic: sentences to be spoken)"
    )
    p.add_argument("output", metavar="OUT", help="the folder of the manifests")
    p.add_argument(
        "--language",
        help="fleurs, respin: the one to take, such as hi_in or hi; synthetic: one of espeak-ng's (default en)",
    )
    p.add_argument(
        "--text-field", metavar="NAME[,NAME]",
        help="jsonl, csv, huggingface: the field with the transcript (default text); jsonl: several, which are "
        "transcripts of the same utterance",
    )  # fmt: skip
    p.add_argument("--subsets", nargs="+", default=[], metavar="NAME", help="only these, such as train-clean-100")
    p.add_argument("--hours", type=float, metavar="H", help="a random part of the training data, at most so long")
    p.add_argument("--unique-sentences", action="store_true", help="of training utterances with the same text only one")
    p.add_argument("--voices", type=int, default=40, help="synthetic: how many different voices speak (default 40)")
    p.add_argument("--seed", type=int, default=0, help="another one chooses other utterances and voices (default 0)")
    p.add_argument(
        "--no-decode", action="store_true", help="look at the headers and ends of files only; faster for large corpora"
    )
    p.add_argument(
        "--shards", action="store_true", help="also pack each part into shards, OUT/shards/NAME: see `wildctc pack`"
    )
    add_text_options(p)
    add_limit_option(p)


def run(options: argparse.Namespace) -> None:
    from wildctc.corpora.preparation import prepare
    from wildctc.corpora.subset import Subset
    from wildctc.corpora.summary import summarize

    take = Subset(options.hours, options.unique_sentences, options.seed)
    source, corpus, language = options.source, options.input, options.language
    if source == "synthetic":
        from wildctc.corpora.synthetic import synthesize

        settings = {"language": language or "en", "voices": options.voices, "seed": options.seed}
        source, corpus, language = "jsonl", synthesize(corpus, options.output, **settings), None
    if source == "huggingface":
        from wildctc.corpora.hf_dataset import unpack

        source, corpus, options.text_field = "jsonl", unpack(corpus, options.output, options.text_field), None
    prepared = prepare(
        source, corpus, options.output, normalizer(options), options.max_bad,
        language=language, subsets=options.subsets, take=take, decode=not options.no_decode,
        text_field=None if options.text_field is None else options.text_field.split(","),
    )  # fmt: skip
    print(summarize(prepared, options.output))
    if options.shards:
        _pack(list(prepared), Path(options.output))


def _pack(names: list[str], folder: Path) -> None:
    from wildctc.corpora.packing import Packing, pack
    from wildctc.corpora.shards import describe

    for name in names:
        target = folder / "shards" / name
        shards = pack(folder / f"{name}.jsonl.gz", target, Packing(decode=False), workers=available_cores())
        print(describe(target, shards))
