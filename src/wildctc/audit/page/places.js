// Where the findings and the words of a transcript are in a text that is being edited.
"use strict";

const STATES = 100_000; // places of earlier texts that are remembered

class Places {
  constructor(row) {
    this.text = row.text;
    // used: the finding was copied into the fix, or its text was edited by hand
    this.findings = row.issues.map(({ begin, stop }) => ({ begin, stop, used: false }));
    this.words = row.words.map(({ begin, stop }) => ({ begin, stop }));
    this.states = new Map(); // text → places: an undo brings them back
    this.remember();
  }

  remember() {
    const copy = (places) => places.map((place) => ({ ...place }));
    this.states.delete(this.text);
    this.states.set(this.text, [copy(this.findings), copy(this.words)]);
    if (this.states.size > Math.max(10, STATES / (this.words.length + 1))) this.states.delete(this.states.keys().next().value);
  }

  // The text was changed in one place.
  follow(now) {
    const known = this.states.get(now);
    if (known) [this.findings, this.words] = known;
    else this.shift(now);
    this.text = now;
    this.remember();
  }

  shift(now) {
    const old = this.text;
    const least = Math.min(old.length, now.length);
    let same = 0,
      tail = 0;
    while (same < least && old[same] === now[same]) same++;
    while (tail < least - same && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail++;
    const changed = old.length - tail;
    const longer = now.length - old.length;
    for (const place of this.findings) {
      if (place.begin >= changed) {
        place.begin += longer;
        place.stop += longer;
      } else if (place.stop > same) place.used = true;
    }
    for (const place of this.words) {
      if (place.begin >= changed) place.begin += longer;
      else if (place.begin > same) place.begin = same;
      if (place.stop >= changed) place.stop += longer;
      else if (place.stop > same) place.stop = same;
    }
  }

  // The number of the written word at a place of the text; the word before it, if it is between words.
  wordAt(place) {
    return Math.max(
      0,
      this.words.findLastIndex(({ begin }) => begin <= place),
    );
  }

  // The next (step 1) or previous (-1) finding that is not in the fix yet, from a place of the text; or null.
  next(place, from, step) {
    const order = this.findings
      .map(({ begin, stop, used }, number) => ({ begin, stop, used, number }))
      .sort((a, b) => step * (a.begin - b.begin || a.stop - b.stop || a.number - b.number));
    const current = order.findIndex(({ number, begin }) => number === from && begin === place);
    const rest = current < 0 ? order.filter(({ begin }) => step * (begin - place) >= 0) : order.slice(current + 1);
    return rest.find(({ used }) => !used)?.number ?? null;
  }
}
