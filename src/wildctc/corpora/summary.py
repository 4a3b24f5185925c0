"""The summary that `wildctc prepare` prints: sizes, what the parts share, and what was skipped and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from wildctc.corpora.preparation import Prepared, by_kind
from wildctc.corpora.utterance import Utterance
from wildctc.terminal import table
from wildctc.text.alternatives import every_word, has_grammar, parse_text
from wildctc.text.units import name_characters

_RARE = 10  # characters that occur less often in train can hardly be learnt
_SHOWN = 20  # of a long list
_CHANNELS = {1: "mono", 2: "stereo"}
_MISSING = {
    "train": "there is nothing to train on",
    "dev": "`wildctc train` needs one, to choose its best epochs by",
    "test": "there is nothing to measure a trained model on",
}


def summarize(prepared: Prepared, out_dir: str | Path) -> str:
    """Describe a prepared corpus.

    Args:
        prepared: The result of `prepare`.
        out_dir: The folder that it was written to, to name its files.

    Returns:
        Lines for a terminal.
    """
    notes = [
        ("audio", _audio(prepared)),
        ("characters", _characters(prepared)),
        *((f"no {split}", why) for split, why in _MISSING.items() if not prepared.get(split)),
        ("skipped", _skipped(prepared, Path(out_dir))),
    ]
    width = max(len(name) for name, _ in notes) + 2
    lines = [name.ljust(width) + text.replace("\n", "\n" + " " * width) for name, text in notes if text]
    return "\n".join([_sizes(prepared, Path(out_dir)), "", *lines])


def _sizes(prepared: Prepared, out_dir: Path) -> str:
    """Give the size of each file, and how much of it is in train too."""
    train = prepared.get("train", [])
    unit, seconds = ("hours", 3600) if sum(u.duration for u in train) >= 3600 else ("minutes", 60)
    header = [str(out_dir), "utterances", unit, "speakers", "in train", "sentences", "in train"]
    order = sorted(prepared, key=lambda name: list(_MISSING).index(name) if name in _MISSING else len(_MISSING))
    rows = []
    for name in order:
        part = prepared[name]
        length = sum(u.duration for u in part) / seconds
        shared = [_shared(part, train if part[:1] and part[0].split != "train" else None, key) for key in (_who, _what)]
        rows.append([f"{name}.jsonl.gz", f"{len(part):,}", f"{length:,.2f}", *shared[0], *shared[1]])
    return table(header, rows)


def _who(utterance: Utterance) -> str | None:
    return utterance.speaker


def _what(utterance: Utterance) -> str | None:
    return utterance.text


def _shared(
    part: Sequence[Utterance], train: Sequence[Utterance] | None, key: Callable[[Utterance], str | None]
) -> tuple[str, str]:
    """Count the different speakers or sentences, and those of them that are in train too."""
    found = {key(u) for u in part} - {None}
    if not found:
        return "unknown" if part else "0", ""
    return f"{len(found):,}", "" if train is None else f"{len(found & {key(u) for u in train}):,}"


def _audio(prepared: Prepared) -> str:
    splits = [part for name, part in prepared.files.items() if name in _MISSING]
    counts = Counter((checked.rate, checked.channels) for part in splits for checked in part)
    kinds = [
        f"{rate:,} Hz {_CHANNELS.get(channels, f'with {channels} channels')}"
        + (f" ({count:,} utterances)" if len(counts) > 1 else "")
        for (rate, channels), count in counts.most_common()
    ]
    not_decoded = "\nnot decoded (--no-decode): later commands will report files that are damaged inside"
    return _some(kinds) + ("\nall of it can be decoded" if prepared.decoded else not_decoded)


def _characters(prepared: Prepared) -> str:
    """Count the characters of train, and name those that are rare there, and those of dev and test that it lacks."""
    counts = Counter(char for u in prepared.get("train", []) for char in _writable(u))
    if not counts:
        return ""
    text = f"{len(counts)} in train"
    if rare := sorted((count, char) for char, count in counts.items() if count < _RARE):
        text += f"; fewer than {_RARE} times: " + _some([f"{_show(char)} {count}×" for count, char in rare])
    for split in ("dev", "test"):
        lacking = [{char for char in _writable(u) if char not in counts} for u in prepared.get(split, [])]
        if missing := Counter(char for chars in lacking for char in chars):
            shown = _some([f"{_show(char)} {count}×" for char, count in missing.most_common()])
            having = sum(1 for chars in lacking if chars)
            text += f"\nin {split} but not in train: {shown}, in {having:,} utterances; a model cannot learn them"
    return text


def _writable(utterance: Utterance) -> str:
    """All that a model would have to write: every alternative, without braces."""
    texts = utterance.texts or (utterance.text,)
    return " ".join(every_word(parse_text(text)) if has_grammar(text) else text for text in texts)


def _skipped(prepared: Prepared, out_dir: Path) -> str:
    if not prepared.rejected:
        return ""
    title = f"{len(prepared.rejected):,} of {prepared.total:,} utterances, listed in {out_dir / 'rejected.jsonl'}:"
    return "\n".join([title, *by_kind(prepared.rejected)])


def _show(char: str) -> str:
    return f'"{char}"' if "!" <= char <= "~" else name_characters([char])


def _some(items: Iterable[str]) -> str:
    shown = list(items)
    return ", ".join(shown[:_SHOWN]) + (f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else "")
