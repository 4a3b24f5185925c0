// Rules about recurring findings: "variant" (both words are right) and "hide" (the model's error). A rule is stored like a
// decision; its id names the finding. Findings that a rule settles are not shown, and do not count.
"use strict";

const RULES = { variant: "accepted as a variant", hide: "hidden as the model's error" };
const RULE_ID = "finding\t";
const hidden = new Set(); // ids of rules that hold

const ruleId = ({ kind, written, heard }) => RULE_ID + [kind, written, heard].join("\t");
const isRuleId = (id) => id.startsWith(RULE_ID);

// What stands for the finding of a rule where decisions have a row.
function ruleRow(id) {
  const [, kind, written, heard] = id.split("\t");
  return { id, text: written, rule: { kind, written, heard } };
}

const canBeVariant = ({ kind, written, heard }) =>
  kind === "changed" && [written, heard].every((text) => text.trim() !== "");

// The rules that hold: the newest about each finding. Returns [{kind, written, heard}, decision], the last made first.
function rulesOf(decisions) {
  const found = new Map();
  const note = (id, made) => {
    if (made && isRuleId(id) && !(found.get(id)?.at > made.at)) found.set(id, made);
  };
  for (const [id, others] of decisions.others) for (const made of others.values()) note(id, made);
  for (const [id, made] of decisions.made) note(id, made);
  return [...found].map(([id, made]) => [ruleRow(id).rule, made]).sort(([, a], [, b]) => (a.at < b.at ? 1 : -1));
}

// Take over the rules that hold now. A variant holds in both directions.
function setRules(rules) {
  hidden.clear();
  for (const [{ kind, written, heard }, { decision }] of rules) {
    hidden.add(ruleId({ kind, written, heard }));
    if (decision === "variant") hidden.add(ruleId({ kind, written: heard, heard: written }));
  }
  applyRules();
}

function applyRules() {
  for (const row of report.rows) if (row.every && (hidden.size || row.issues !== row.every)) applyRule(row);
}

function applyRule(row) {
  const left = row.every.filter((issue) => !hidden.has(ruleId(issue)));
  if (left.length === row.every.length && row.issues === row.every) return;
  row.issues = left.length === row.every.length ? row.every : left;
  const sum = (issues) => issues.reduce((total, { score }) => total + score, 0);
  row.suspicion = Math.max(0, row.own - sum(row.every) + sum(row.issues));
  setWorst(row, row.issues.map(({ kind }) => KINDS.indexOf(kind)), row.issues.map(({ score }) => score));
}
