"""What Label Studio needs to show the tasks of `wildctc exchange`, and the decisions that it exports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wildctc.errors import WildCTCError

# To be pasted into the labelling setup of the project.
CONFIG = """<View>
  <Labels name="findings" toName="audio">
    <Label value="changed"/><Label value="extra"/><Label value="missing"/>
  </Labels>
  <Audio name="audio" value="$audio"/>
  <Header value="$text"/>
  <TextArea name="transcript" toName="audio" editable="true" maxSubmissions="1"/>
</View>
"""


def from_label_studio(tasks: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Convert what Label Studio exported ("JSON") to decisions.

    Args:
        tasks: The parsed JSON.

    Yields:
        Where each annotation is, and a decision's JSON object.
    """
    for number, task in enumerate(tasks, start=1):
        try:
            data = task["data"]
            for annotation in task.get("annotations") or []:
                by = annotation.get("completed_by") or ""
                reviewer = str((by.get("email") or by.get("id") or "") if isinstance(by, dict) else by)
                row = {"id": data["id"], "text": data["text"], "reviewer": reviewer}
                row["at"] = annotation.get("updated_at") or annotation.get("created_at") or ""
                areas = [r["value"]["text"] for r in annotation.get("result") or [] if r.get("type") == "textarea"]
                fixed = " ".join(" ".join(text) if isinstance(text, list) else str(text) for text in areas).strip()
                if annotation.get("was_cancelled") or not fixed:
                    yield f"task {number}", row | {"decision": "skip"}
                elif fixed.split() == data["text"].split():
                    yield f"task {number}", row | {"decision": "accept"}
                else:
                    yield f"task {number}", row | {"decision": "fix", "fixed": fixed}
        except (KeyError, TypeError, AttributeError) as error:
            raise WildCTCError(f"task {number}: not a task that `wildctc exchange` made (no {error})") from None
