"""What the API pages show of docstrings: examples as blocks of code, and the fields of records."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)
COMMENT = re.compile(r"  # (.+)$")
SECTION = re.compile(r"^ *(Args|Attributes):$", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Changes docstrings before they are rendered."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Fence each example, up to the next empty line: Markdown would take `>>>` for a quotation."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(_fenced, obj.docstring.value)

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """List the fields of a record: `bypass: Tensor  # (N, S) …`, with the comment as description."""
        fields = [a for a in cls.attributes.values() if "property" not in a.labels and not a.name.startswith("_")]
        is_record = "dataclass" in cls.labels or "NamedTuple" in map(str, cls.bases)
        if is_record and fields and cls.docstring and not SECTION.search(cls.docstring.value):
            cls.docstring.value += "\n\nAttributes:\n" + "\n".join(map(_field, fields))


def _field(field: griffe.Attribute) -> str:
    comment = COMMENT.search(field.lines[0]) if "# type:" not in field.lines[0] else None
    return f"    {field.name} ({field.annotation}): {comment[1] if comment else ''}"


def _fenced(example: re.Match[str]) -> str:
    lines = [re.sub(r"\s*# doctest: .*", "", line) for line in example[0].splitlines()]
    return "\n".join([f"{example[1]}```pycon", *lines, f"{example[1]}```"])
