// The decisions of this reviewer and of others. Where they are kept is the business of a store: the browser's own
// (browser_store.js), or a server (server_store.js). A store has
//   open(take)           reads what is there; then and later calls take(id, decision, mine, live)
//   save(row, decision)  keeps a decision; null takes it back
//   waiting              the ids of decisions that are not kept yet
"use strict";

const DECISIONS = { accept: "accepted", fix: "fixed", skip: "skipped" };

// Whether a value from outside is a decision.
function isDecision(value) {
  if (!Object.hasOwn(DECISIONS, value?.decision)) return false;
  return value.decision !== "fix" || (typeof value.fixed === "string" && value.fixed.trim() !== "");
}

const sameDecision = (a, b) => a.decision === b.decision && (a.fixed ?? null) === (b.fixed ?? null);

class Decisions {
  // team: who reviews what (reviewers.js).
  constructor(store, team) {
    this.store = store;
    this.team = team;
    this.made = new Map(); // id → {decision, fixed, at}: those of this reviewer
    this.others = new Map(); // id → Map of reviewer → decision
    this.onchange = () => {}; // (id): another window or reviewer has changed a decision
  }

  async open() {
    await this.store.open((id, decision, mine, live) => {
      if (mine) this.put(this.made, id, decision);
      else {
        if (!this.others.has(id)) this.others.set(id, new Map());
        this.put(this.others.get(id), decision.reviewer, decision.decision ? decision : null);
      }
      if (live) this.onchange(id);
    });
    return this;
  }

  put(map, key, decision) {
    if (decision) map.set(key, decision);
    else map.delete(key);
  }

  get unstored() {
    return this.store.waiting;
  }

  // This reviewer's decision.
  of(row) {
    return this.made.get(row.id) ?? null;
  }

  othersOf(row) {
    return [...(this.others.get(row.id)?.values() ?? [])];
  }

  // What the list shows: this reviewer's decision, or the newest of the others.
  shown(row) {
    return this.of(row) ?? this.othersOf(row).sort((a, b) => (a.at < b.at ? 1 : -1))[0] ?? null;
  }

  // Whether this reviewer still has to decide.
  isOpen(row) {
    if (this.of(row)) return isPartlyFixed(row, this.of(row));
    const whose = this.team.assigned(row);
    return whose.includes(this.team.name) || this.othersOf(row).length < Math.max(1, whose.length);
  }

  // Whether reviewers disagree. A skip disagrees with nobody.
  inConflict(row) {
    const judged = [this.of(row), ...this.othersOf(row)].filter((made) => made && made.decision !== "skip");
    return judged.some((made) => !sameDecision(made, judged[0]));
  }

  // decision: {decision, fixed}, or null for none. Returns the decision before.
  set(row, decision) {
    const before = this.of(row);
    const { name } = this.team;
    const made = decision && { at: new Date().toISOString(), ...decision, ...(name && { reviewer: name }) };
    this.put(this.made, row.id, made);
    this.store.save(row, made);
    return before;
  }

  // The rows with at least one decision.
  counts() {
    const counts = { accept: 0, fix: 0, skip: 0 };
    for (const id of new Set([...this.made.keys(), ...this.others.keys()])) {
      const made = this.shown(report.byId.get(id));
      if (made) counts[made.decision]++;
    }
    return counts;
  }

  // All decisions as JSON lines, in the order of the manifest.
  toLines() {
    const lines = [];
    for (const row of report.rows)
      for (const made of [this.of(row), ...this.othersOf(row)].filter(Boolean)) {
        const { decision, fixed, at, reviewer, reason, comment } = made;
        const about = { at, reviewer, reason, comment, report: report.info.key };
        lines.push(JSON.stringify({ id: row.id, decision, text: row.text, fixed, ...about }));
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
    if (!made || sameDecision(made, given)) return false;
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
