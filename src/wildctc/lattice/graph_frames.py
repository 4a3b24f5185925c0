"""The frames that a transcript graph needs at least (specification §10), by the rule of plain CTC."""

import math

from wildctc.lattice.transcripts import TranscriptGraph


def frames_needed(graph: TranscriptGraph) -> int:
    """Count the frames of the shortest path, without wildcards.

    Args:
        graph: The graph.

    Returns:
        The least number of frames that has a path.

    >>> frames_needed(TranscriptGraph.from_slots([[[1, 1, 2], [3]], [[3, 4]]]))
    4
    >>> frames_needed(TranscriptGraph.from_labels([1, 1, 2]))
    4
    """
    blank = [0.0] + [math.inf] * (graph.num_states - 1)  # frames to be in a blank at each state
    into: list[dict[int, float]] = [{} for _ in blank]  # state → label of an arc into it → frames at the end of the arc
    for arc in graph.arcs:
        others = (frames for label, frames in into[arc.source].items() if label != arc.label)
        frames = 1 + min([blank[arc.source], *others])
        into[arc.target][arc.label] = min(frames, into[arc.target].get(arc.label, math.inf))
        blank[arc.target] = min(blank[arc.target], frames + 1)
    ends = (min([blank[q], *into[q].values()]) for q, weight in enumerate(graph.final) if weight > -math.inf)
    return int(min(ends))
