"""`wildctc prepare`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wildctc.commands.options import Add, add_engine_options, add_limit_option, add_text_options, normalizer
from wildctc.cores import available_cores
from wildctc.errors import WildCTCError

_SOURCES = (
    "jsonl", "csv", "kaldi", "audiofolder", "huggingface", "librispeech", "common-voice", "ljspeech", "voxpopuli",
    "fleurs", "respin", "webdataset", "nemo-tarred", "wenet", "synthetic",
)  # fmt: skip


def register(add: Add) -> None:
    p = add("prepare", run, "Turn a corpus into manifests: OUT/{train,dev,test}.jsonl.gz.")
    names = f"{', '.join(_SOURCES[:-1])} or {_SOURCES[-1]}"
    p.add_argument("source", metavar="SOURCE", choices=_SOURCES, help=names)
    p.add_argument(
        "input",
        metavar="IN",
        help="the corpus's folder (jsonl, csv: or file; huggingface: or address; synthetic: text)",
    )
    p.add_argument("output", metavar="OUT", help="the folder of the manifests")
    p.add_argument(
        "--language",
        help="fleurs, respin: the one to take, such as hi_in or hi; huggingface: the configuration; synthetic: one of "
        "espeak-ng's (default en)",
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
    p.add_argument(
        "--audio-root", metavar="DIR", help="where the audio is now, if the files of the corpus name another folder"
    )
    add_text_options(p)
    add_limit_option(p)
    add_engine_options(p)


def run(options: argparse.Namespace) -> None:
    from wildctc.corpora.preparation import prepare
    from wildctc.corpora.subset import Subset
    from wildctc.corpora.summary import summarize

    if options.engine == "ray" and not options.shards:
        raise WildCTCError("--engine ray shares the work of packing: give --shards with it")
    take = Subset(options.hours, options.unique_sentences, options.seed)
    source, corpus, language = options.source, options.input, options.language
    if source == "synthetic":
        from wildctc.corpora.synthetic import synthesize

        settings = {"language": language or "en", "voices": options.voices, "seed": options.seed}
        source, corpus, language = "jsonl", synthesize(corpus, options.output, **settings), None
    if source == "huggingface":
        from wildctc.corpora.hf_dataset import unpack

        source, corpus, options.text_field = "jsonl", unpack(corpus, options.output, options.text_field, language), None
        language = None
    prepared = prepare(
        source, corpus, options.output, normalizer(options), options.max_bad,
        language=language, subsets=options.subsets, take=take,
        decode=not options.no_decode and options.engine == "here",  # otherwise all audio is decoded by the workers
        audio_root=options.audio_root,
        text_field=None if options.text_field is None else options.text_field.split(","),
    )  # fmt: skip
    print(summarize(prepared, options.output))
    if options.shards:
        _pack(list(prepared), options)


def _pack(names: list[str], options: argparse.Namespace) -> None:
    from wildctc.corpora.packing import Packing, pack
    from wildctc.corpora.shards import describe
    from wildctc.ray_engine import run_on_ray

    on_ray = options.engine == "ray"
    packing = Packing(decode=on_ray and not options.no_decode, max_bad=options.max_bad)
    for name in names:
        manifest, target = Path(options.output) / f"{name}.jsonl.gz", Path(options.output) / "shards" / name
        if on_ray:
            limit = ["--max-bad", str(options.max_bad), *(["--no-decode"] if options.no_decode else [])]
            run_on_ray(["pack", str(manifest), str(target), *limit], options.ray_workers)
        print(describe(target, pack(manifest, target, packing, workers=available_cores())))
