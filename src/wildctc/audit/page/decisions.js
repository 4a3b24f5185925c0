// The decisions of this reviewer and of others. Where they are kept is the business of a store: the browser's own
// (browser_store.js), or a server (server_store.js). A store has
//   open(take)           reads what is there; then and later calls take(id, decision, mine, live)
//   save(row, decision)  keeps a decision; null takes it back
//   waiting              the ids of decisions that are not kept yet
"use strict";

const DECISIONS = { accept: "accepted", fix: "fixed", skip: "skipped" };

// Whether a value from outside is a decision.
function isDecision(value) {
  if (Object.hasOwn(RULES, value?.decision)) return typeof value.fixed === "string";
  if (!Object.hasOwn(DECISIONS, value?.decision)) return false;
  return value.decision !== "fix" || (typeof value.fixed === "string" && value.fixed.trim() !== "");
}

const sameDecision = (a, b) => a.decision === b.decision && (a.fixed ?? null) === (b.fixed ?? null);
const isNewer = (a, b) => Date.parse(a.at) > Date.parse(b.at);

class Decisions {
  // team: who reviews what (reviewers.js).
  constructor(store, team) {
    this.store = store;
    this.team = team;
    this.made = new Map(); // id → {decision, fixed, at}: those of this reviewer
    this.others = new Map(); // id → Map of reviewer → decision
    this.onchange = () => {}; // (ids): another window or reviewer has changed decisions
    this.totals = { accept: 0, fix: 0, skip: 0 };
    this.news = []; // ids that onchange has not been told about
  }

  async open() {
    await this.store.open((id, decision, mine, live) => {
      if (mine) this.put(id, decision);
      else this.put(id, decision.decision ? decision : null, decision.reviewer);
      if (live) this.tell(id);
    });
    return this;
  }

  tell(id) {
    if (this.news.push(id) > 1) return;
    queueMicrotask(() => {
      const ids = this.news;
      this.news = [];
      this.onchange(ids);
    });
  }

  // Keep a decision of this reviewer, or of another.
  put(id, decision, reviewer = null) {
    const row = report.byId.get(id);
    if (row) this.count(row, -1);
    if (reviewer !== null && !this.others.has(id)) this.others.set(id, new Map());
    const [map, key] = reviewer === null ? [this.made, id] : [this.others.get(id), reviewer];
    if (decision) map.set(key, decision);
    else map.delete(key);
    if (row) this.count(row, 1);
  }

  count(row, step) {
    const made = this.shown(row);
    if (made) this.totals[made.decision] += step;
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
    if (made) for (const field of ["reason", "comment"]) made[field] ||= undefined;
    this.put(row.id, made);
    this.store.save(row, made);
    return before;
  }

  // How many utterances have a decision, by kind.
  counts() {
    return this.totals;
  }

  // All decisions as JSON lines, in the order of the manifest; then the rules.
  toLines() {
    const lines = [];
    const rules = [...new Set([...this.made.keys(), ...this.others.keys()])].filter(isRuleId).map(ruleRow);
    for (const row of [...[...report.rows].sort((a, b) => a.place - b.place), ...rules])
      for (const made of [this.of(row), ...this.othersOf(row)].filter(Boolean)) {
        const { decision, fixed, at, reviewer, reason, comment } = made;
        const about = { at, reviewer, reason, comment, report: report.info.key };
        lines.push(JSON.stringify({ id: row.id, decision, text: row.text, fixed, ...about }));
      }
    return lines.map((line) => `${line}\n`).join("");
  }

  async download() {
    await loadTexts();
    const address = URL.createObjectURL(new Blob([this.toLines()], { type: "application/jsonl" }));
    const link = make("a", { href: address, download: `${report.info.name}-decisions.jsonl` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }

  // Whether a decision of a file differs from the one that was made here and is not newer.
  isOlder(row, given) {
    const made = this.of(row);
    if (!made || sameDecision(made, given)) return false;
    return !isNewer(given, made);
  }
}

// Decisions as JSON lines. Returns those of this report, the ids of the others, and what is wrong, if anything is. Of
// several reviewers' decisions on one utterance, the newest counts.
function parseDecisions(text) {
  const found = { given: new Map(), unknown: [], changed: [], several: 0, error: null };
  const rules = new Map();
  const lines = text.replace(/^\ufeff/, "").split("\n");
  for (const [number, line] of lines.entries()) {
    if (!line.trim()) continue;
    let value;
    try {
      value = JSON.parse(line);
    } catch {
      return { ...found, error: `line ${number + 1} is not JSON; nothing was loaded` };
    }
    if (!isDecision(value) || typeof value.id !== "string")
      return { ...found, error: `line ${number + 1} is not a decision; nothing was loaded` };
    const isRule = isRuleId(value.id);
    if (isRule && !rules.has(value.id)) rules.set(value.id, ruleRow(value.id));
    const row = isRule ? rules.get(value.id) : report.byId.get(value.id);
    if (isRule !== Object.hasOwn(RULES, value.decision))
      return { ...found, error: `line ${number + 1} is not a decision; nothing was loaded` };
    if (!row) found.unknown.push(value.id);
    else if (row.text !== value.text) found.changed.push(value.id);
    else takeNewest(found, row, value);
  }
  return found;
}

function takeNewest(found, row, { decision, fixed, at, reviewer, reason, comment }) {
  const string = (value) => (typeof value === "string" && value ? value : undefined);
  const keep = decision === "fix" || row.rule ? fixed : undefined;
  const made = { decision, fixed: keep, at: asTime(at), reason: string(reason), comment: string(comment) };
  if (string(reviewer)) made.reviewer = reviewer;
  const before = found.given.get(row);
  if (before && (before.reviewer ?? "") !== (made.reviewer ?? "")) {
    found.several++;
    if (isNewer(before, made)) return;
  }
  found.given.set(row, made);
}

const asTime = (value) => (Number.isNaN(Date.parse(value)) ? new Date(0) : new Date(value)).toISOString();
