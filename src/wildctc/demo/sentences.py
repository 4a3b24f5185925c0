"""Sentences for the demo: English, like the pretrained front end, with many words that have several spellings."""

from __future__ import annotations

import random
import re

# How espeak-ng is told the word, and how else people write it.
VARIANTS: dict[str, tuple[str, ...]] = {
    "analysed": ("analyzed",), "apologised": ("apologized",), "archaeology": ("archeology",), "armour": ("armor",),
    "axe": ("ax",), "cancelled": ("canceled",), "catalogue": ("catalog",), "centre": ("center",), "cheque": ("check",),
    "colour": ("color",), "cosy": ("cozy",), "counsellor": ("counselor",), "criticised": ("criticized",),
    "defence": ("defense",), "dialogue": ("dialog",), "doughnut": ("donut",), "draught": ("draft",),
    "favourite": ("favorite",), "fibre": ("fiber",), "flavour": ("flavor",), "grey": ("gray",), "harbour": ("harbor",),
    "honour": ("honor",), "humour": ("humor",), "kerb": ("curb",), "labelled": ("labeled",), "labour": ("labor",),
    "licence": ("license",), "litres": ("liters",), "marvellous": ("marvelous",), "memorised": ("memorized",),
    "metres": ("meters",), "mould": ("mold",), "moustache": ("mustache",), "neighbour": ("neighbor",),
    "odour": ("odor",), "omelette": ("omelet",), "organised": ("organized",), "parlour": ("parlor",),
    "plough": ("plow",), "programme": ("program",), "pyjamas": ("pajamas",), "realised": ("realized",),
    "recognised": ("recognized",), "rumour": ("rumor",), "skilful": ("skillful",), "sombre": ("somber",),
    "sulphur": ("sulfur",), "theatre": ("theater",), "traveller": ("traveler",), "tyre": ("tire",),
    "vapour": ("vapor",), "whisky": ("whiskey",), "woollen": ("woolen",), "yoghurt": ("yogurt", "yoghourt"),
}  # fmt: skip

_OPTIONS: dict[str, str] = {
    "who": """my neighbour|the traveller|our counsellor|the young doctor|her brother|the old farmer|a tall soldier
        |the new teacher|their captain|the quiet baker|his sister|a clever painter|the mayor|my uncle
        |the skilful nurse""",
    "thing": """catalogue|cheque|licence|programme|plough|axe|tyre|doughnut|letter|basket|mirror|bicycle|ladder|window
        |blanket|hammer|armour|moustache|encyclopedia|bottle of whisky|pair of pyjamas|dialogue|portrait|candle""",
    "food": """yoghurt|omelette|doughnut|soup|bread|cheese|whisky|coffee|apple pie|honey|rice|fish|orange juice""",
    "place": """theatre|shopping centre|harbour|parlour|garden|kitchen|station|library|bridge|village|museum|market
        |hospital|kerb|castle|river""",
    "how": "grey|cosy|sombre|marvellous|woollen|favourite|green|broken|heavy|narrow|golden|simple|empty|famous|little",
    "did": """organised|cancelled|criticised|labelled|recognised|memorised|analysed|painted|borrowed|found|sold
        |carried|forgot|repaired|described""",
    "topic": """archaeology|the colour of the sky|the rumour|the labour law|the defence of the town|fibre and glass
        |the price of milk|good humour|the long winter|sulphur|the last war|music""",
    "when": """in the morning|on monday|last summer|before dinner|at midnight|after the storm|every evening|in october
        |a week ago|on friday night|during the lesson|this spring""",
    "stuff": "mould|sulphur|grey paint|warm water|fresh snow|white sand|colour|vapour|salt|wool",
    "smell": "odour|flavour|colour|taste|weight|sound",
    "many": "two|three|four|five|seven|nine|twenty|fifty",
}  # fmt: skip

_TEMPLATES = """
{who} {did} the {how} {thing} {when}
{who} {did} a {thing} near the {place}
there is a {how} {thing} in the {place}
{who} talked about {topic} {when}
we {did} the {how} {place} {when}
the {smell} of the {food} was {how}
{who} realised that the {thing} was {how}
{who} apologised for the {how} {thing}
a draught came through the {place} {when}
the {place} is {many} metres from the {place}
please bring {many} litres of {stuff} to the {place}
it is an honour to visit the {how} {place}
{who} wrote a book about {topic}
{who} ate {food} in the {place} {when}
the {thing} and the {thing} are covered with {stuff}
nobody {did} the {thing} because of the {how} {smell}
{who} likes {food} and {food}
is this the {thing} that {who} {did}
""".strip().splitlines()

_SLOTS = {name: [" ".join(option.split()) for option in options.split("|")] for name, options in _OPTIONS.items()}


def sentences(count: int, seed: int) -> list[str]:
    """Draw different sentences.

    Args:
        count: How many.
        seed: Decides which.

    Returns:
        The sentences.

    >>> sentences(2, seed=3)  # doctest: +SKIP
    """
    rng = random.Random(f"sentences {seed}")
    found: dict[str, None] = {}
    while len(found) < count:
        found[re.sub(r"\{(\w+)\}", lambda slot: rng.choice(_SLOTS[slot[1]]), rng.choice(_TEMPLATES))] = None
    return list(found)
