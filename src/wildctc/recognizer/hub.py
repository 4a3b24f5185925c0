"""Models on the Hugging Face hub: the files of a model folder, and nothing that is executed.

huggingface_hub's mixin would have to be a base class of `Recognizer`, which works without that package; and it makes a
config.json of its own and knows no units. With both of its methods replaced, what is left of it are the calls here.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from wildctc.errors import MissingExtra, WildCTCError

FILES = ("config.json", "units.json", "spm.model", "model.safetensors", "confidence.json", "README.md")
_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def is_hub_name(name: str | os.PathLike[str]) -> bool:
    """Tell whether a name is that of a model of the hub: user/model, and no such path here.

    Args:
        name: What the user gave.

    Returns:
        Whether it is looked up on the hub.

    >>> is_hub_name("ann/iban"), is_hub_name("./ann/iban"), is_hub_name("/")
    (True, False, False)
    """
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and not name.startswith(".") and (
        not os.path.lexists(name)
    )  # fmt: skip


def download(name: str, revision: str | None = None) -> Path:
    """Fetch a model, or find it in the cache of huggingface_hub.

    Args:
        name: user/model.
        revision: A branch, tag or commit; None for the newest.

    Returns:
        The model folder.

    Raises:
        WildCTCError: There is no such model, or it cannot be fetched.
    """
    hub = _huggingface_hub()
    try:
        return Path(hub.snapshot_download(name, revision=revision, allow_patterns=list(FILES)))
    except Exception as error:  # its own classes, those of its HTTP library, and OSError
        raise WildCTCError(
            f"{name}: there is no such folder here, and the Hugging Face hub does not give it: {_first_line(error)}"
        ) from None


def upload(folder: Path, name: str, *, private: bool, token: str | None, endpoint: str | None) -> str:
    """Send the files of a model folder to the hub as one commit.

    Args:
        folder: A model folder; other files in it stay here.
        name: user/model; it is made if needed.
        private: Whether a new repository is private.
        token: For writing; None takes the one of `hf auth login`.
        endpoint: The address of another hub; None for huggingface.co.

    Returns:
        The address of the model.

    Raises:
        WildCTCError: The hub refuses it, or cannot be reached.
    """
    api = _huggingface_hub().HfApi(endpoint=endpoint, token=token)
    try:
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=name, folder_path=folder, allow_patterns=list(FILES), commit_message="Upload a WildCTC model"
        )
    except Exception as error:  # as above
        raise WildCTCError(f"{name}: the Hugging Face hub did not take the model: {_first_line(error)}") from None
    return str(address)


def hub_card(name: str, front_end: str, units: int) -> str:
    """Describe a model for its page on the hub.

    Args:
        name: user/model.
        front_end: The name of its front end.
        units: How many outputs it has.

    Returns:
        Markdown with the metadata that the hub reads.
    """
    return f"""---
library_name: wildctc
pipeline_tag: automatic-speech-recognition
tags: [ctc, wildctc]
---

# {name.split("/")[-1]}

A CTC speech recogniser made with WildCTC. Features: `{front_end}`; {units} outputs.

```python
import wildctc

print(wildctc.load("{name}").transcribe("talk.flac").text)
```
"""


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]


def _huggingface_hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtra("huggingface_hub", "hf") from None
    return huggingface_hub
