// Decisions are stored in the browser, with one entry for each utterance, so that two windows do not overwrite each
// other's decisions. All pages opened from disk share one store, so each entry starts with the report's key.
"use strict";

const DECISIONS = { accept: "accepted", fix: "fixed", skip: "skipped" };

// Whether a value from outside is a decision.
function isDecision(value) {
  if (!Object.hasOwn(DECISIONS, value?.decision)) return false;
  return value.decision !== "fix" || (typeof value.fixed === "string" && value.fixed.trim() !== "");
}

class Decisions {
  // onchange(id): another window of this report has changed a decision.
  constructor(key, onchange) {
    this.prefix = `wildctc-audit/${key}/`;
    this.made = new Map(); // id → {decision, fixed, at}
    this.unstored = new Set(); // ids whose last change could not be stored
    this.unreadable = 0; // stored entries that are no decisions
    this.kept = true; // whether the browser has a store at all
    try {
      for (let i = 0; i < localStorage.length; i++) this.take(localStorage.key(i));
    } catch {
      this.kept = false;
    }
    window.addEventListener("storage", (event) => {
      if (!event.key?.startsWith(this.prefix)) return;
      this.take(event.key);
      onchange(event.key.slice(this.prefix.length));
    });
  }

  take(name) {
    if (!name.startsWith(this.prefix)) return;
    const id = name.slice(this.prefix.length);
    const value = localStorage.getItem(name);
    if (value === null) return void this.made.delete(id);
    if (!report.byId.has(id)) return;
    let decision = null;
    try {
      decision = JSON.parse(value);
    } catch {
      // counted below
    }
    if (isDecision(decision)) this.made.set(id, decision);
    else this.unreadable++;
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
      this.unstored.delete(row.id);
    } catch {
      this.unstored.add(row.id);
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

  // Whether a decision of a file differs from the one that was made here and is not newer.
  isOlder(row, given) {
    const made = this.of(row);
    if (!made || (made.decision === given.decision && (made.fixed ?? null) === (given.fixed ?? null))) return false;
    return !(Date.parse(given.at) > Date.parse(made.at));
  }
}

// Decisions as JSON lines. Returns those of this report, the ids of the others, and what is wrong, if anything is.
function parseDecisions(text) {
  const found = { given: new Map(), unknown: [], changed: [], error: null };
  const lines = text.replace(/^\ufeff/, "").split("\n");
  for (const [number, line] of lines.entries()) {
    if (!line.trim()) continue;
    let value;
    try {
      value = JSON.parse(line);
    } catch {
      return { ...found, error: `line ${number + 1} is not JSON; nothing was loaded` };
    }
    if (!isDecision(value)) return { ...found, error: `line ${number + 1} is not a decision; nothing was loaded` };
    const row = report.byId.get(value.id);
    const { decision, fixed, at } = value;
    if (!row) found.unknown.push(value.id);
    else if (row.text !== value.text) found.changed.push(value.id);
    else found.given.set(row, { decision, fixed: decision === "fix" ? fixed : undefined, at: asTime(at) });
  }
  return found;
}

const asTime = (value) => (Number.isNaN(Date.parse(value)) ? new Date(0) : new Date(value)).toISOString();
