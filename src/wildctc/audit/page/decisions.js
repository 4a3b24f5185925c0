// Decisions are stored in the browser, with one entry for each utterance, so that two windows do not overwrite each
// other's decisions. All pages opened from disk share one store, so each entry starts with the report's key.
"use strict";

const DECISIONS = { accept: "accepted", fix: "fixed", skip: "skipped" };

class Decisions {
  constructor(key, onchange) {
    this.prefix = `wildctc-audit/${key}/`;
    this.made = new Map(); // id → {decision, fixed, at}
    this.onchange = onchange;
    this.kept = true;
    try {
      for (let i = 0; i < localStorage.length; i++) this.take(localStorage.key(i));
    } catch {
      this.kept = false;
    }
    window.addEventListener("storage", (event) => {
      // another window of this report
      if (event.key && event.key.startsWith(this.prefix)) {
        this.take(event.key);
        onchange();
      }
    });
  }

  take(name) {
    if (!name.startsWith(this.prefix)) return;
    const id = name.slice(this.prefix.length);
    const value = localStorage.getItem(name);
    if (value === null) this.made.delete(id);
    else if (report.byId.has(id)) this.made.set(id, JSON.parse(value));
  }

  of(row) {
    return this.made.get(row.id) ?? null;
  }

  // decision: {decision, fixed}, or null for none. Returns the decision before.
  set(row, decision) {
    const before = this.of(row);
    if (decision) this.made.set(row.id, { at: new Date().toISOString(), ...decision });
    else this.made.delete(row.id);
    try {
      if (decision) localStorage.setItem(this.prefix + row.id, JSON.stringify(this.made.get(row.id)));
      else localStorage.removeItem(this.prefix + row.id);
    } catch {
      this.kept = false;
    }
    return before;
  }

  counts() {
    const counts = { accept: 0, fix: 0, skip: 0 };
    for (const { decision } of this.made.values()) counts[decision]++;
    return counts;
  }

  // All decisions as JSON lines, in the order of the manifest.
  toLines() {
    const lines = [];
    for (const row of report.rows) {
      const made = this.of(row);
      if (!made) continue;
      const { decision, fixed, at } = made;
      lines.push(JSON.stringify({ id: row.id, decision, text: row.text, fixed, at, report: report.info.key }));
    }
    return lines.map((line) => `${line}\n`).join("");
  }

  download() {
    const address = URL.createObjectURL(new Blob([this.toLines()], { type: "application/jsonl" }));
    const link = make("a", { href: address, download: `${report.info.name}-decisions.jsonl` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }

  // Read decisions from JSON lines. They replace those that were made here. Returns a message with the result.
  load(text) {
    let loaded = 0;
    const unknown = [],
      changed = [];
    for (const [number, line] of text
      .replace(/^\ufeff/, "")
      .split("\n")
      .entries()) {
      if (!line.trim()) continue;
      let given;
      try {
        given = JSON.parse(line);
      } catch {
        return `line ${number + 1} is not JSON; ${loaded} decisions loaded`;
      }
      const row = report.byId.get(given?.id);
      const fixed = typeof given?.fixed === "string" && given.fixed.trim();
      if (!Object.hasOwn(DECISIONS, given?.decision) || (given.decision === "fix" && !fixed))
        return `line ${number + 1} is not a decision; ${loaded} decisions loaded`;
      if (!row) unknown.push(given.id);
      else if (row.text !== given.text) changed.push(given.id);
      else {
        this.set(row, { decision: given.decision, fixed: given.fixed, at: given.at });
        loaded++;
      }
    }
    const parts = [`${plural(loaded, "decision")} loaded`];
    if (unknown.length) parts.push(`${unknown.length} for utterances that are not in this report`);
    if (changed.length) parts.push(`refused, because the transcript is different now: ${changed.join(", ")}`);
    return parts.join("; ");
  }
}
