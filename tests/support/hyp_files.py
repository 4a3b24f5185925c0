"""Hypotheses, and files of them."""

import json
from collections.abc import Iterable
from pathlib import Path

from wildctc.scoring.hypotheses import Decoded, hyp_row


def decoded(*texts: str, reference: str = "a b c d") -> list[Decoded]:
    """Hypotheses u0, u1, … for the same reference."""
    return [Decoded(f"u{i}", text, (reference,)) for i, text in enumerate(texts)]


def write_hyps(path: Path, items: Iterable[Decoded]) -> None:
    """Write a hyp.jsonl as `wildctc decode` does, with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = (json.dumps(hyp_row(item), ensure_ascii=False) for item in items)
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
