// Findings that recur: the same words written, and the same heard, in several places. They are settled once for all: fixed,
// accepted as a variant, or hidden as an error of the model.
"use strict";

const RECURRING = { listed: 200, least: 0.5 }; // findings that are listed; the least score

// The findings with a different text, by what is written and heard; the most frequent first.
function findRecurring() {
  const found = new Map(); // rule id → {issue, places: [[row, issue]], speakers}
  for (const row of report.rows)
    for (const issue of row.issues) {
      if (issue.score < RECURRING.least || issue.written === issue.heard || (!issue.written && !issue.heard)) continue;
      const key = ruleId(issue);
      if (!found.has(key)) found.set(key, { issue, places: [], speakers: new Set() });
      found.get(key).places.push([row, issue]);
      found.get(key).speakers.add(row.speaker);
    }
  return [...found.values()].filter(({ places }) => places.length > 1).sort((a, b) => b.places.length - a.places.length);
}

// The findings of an utterance that were fixed with all others of their kind, as its decision says.
const fixedWithOthers = (made) =>
  made?.reason?.startsWith(TOGETHER) ? made.reason.slice(TOGETHER.length).split("; ") : [];

// Whether an utterance was fixed only as one of many, and has other findings, which nobody has listened to.
const isPartlyFixed = (row, made) => {
  const done = fixedWithOthers(made);
  return done.length > 0 && row.issues?.some((issue) => issue.score >= RECURRING.least && !done.includes(patternText(issue)));
};

// The decision that fixes one more recurring finding of an utterance; null if a person has decided already.
function fixOneMore(row, made, issue) {
  if (made && !fixedWithOthers(made).length) return null;
  return fixTogether(row, made, [...new Set([...fixedWithOthers(made), patternText(issue)])]);
}

// The decision that fixes some recurring findings of an utterance; null if there are none, or if no word would be left.
function fixTogether(row, made, done) {
  let text = row.text;
  const chosen = row.every.filter((one) => one.score >= RECURRING.least && done.includes(patternText(one)));
  for (const { begin, stop, heard } of chosen.sort((a, b) => b.begin - a.begin || b.stop - a.stop))
    text = `${text.slice(0, begin)} ${heard} ${text.slice(stop)}`;
  text = text.split(/\s+/).filter(Boolean).join(" ");
  const reason = TOGETHER + done.join("; ");
  return done.length && text ? { decision: "fix", fixed: text, reason, comment: made?.comment } : null;
}

// What this reviewer has fixed in all utterances at once: finding → utterances.
function findFixedTogether(decisions) {
  const found = new Map();
  for (const [id, made] of decisions.made)
    for (const pattern of report.byId.has(id) ? fixedWithOthers(made) : []) {
      if (!found.has(pattern)) found.set(pattern, []);
      found.get(pattern).push(report.byId.get(id));
    }
  return found;
}

// The last column, with buttons, has no name.
const headLine = (...names) => make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name)), make("td"));

// The dialog. app: the application, with choose(row), playIssue(issue), fixAll(issue, rows) and rule(issue, decision).
class Recurring {
  constructor(app) {
    this.app = app;
    byName("recurring").onclick = () => this.open().catch((error) => say(error.message));
  }

  async open() {
    await loadTexts();
    this.show();
    byName("recurring-dialog").showModal();
  }

  show() {
    const found = findRecurring();
    const head = headLine("Written → heard", "Times", "Speakers", "Sample");
    const lines = found.slice(0, RECURRING.listed).map((pattern) => this.line(pattern));
    byName("recurring-list").replaceChildren(head, ...lines);
    byName("recurring-list").hidden = byName("recurring-about").hidden = lines.length === 0;
    byName("recurring-none").hidden = lines.length > 0;
    this.showRules();
  }

  line({ issue, places, speakers }) {
    const { app } = this;
    const rows = [...new Set(places.map(([row]) => row))];
    const open = rows.filter((row) => fixOneMore(row, app.decisions.of(row), issue));
    const left = open.filter((row) => !fixedWithOthers(app.decisions.of(row)).includes(patternText(issue))).length;
    let sample = 0;
    const play = () => {
      const [row, one] = places[sample++ % places.length];
      app.choose(row);
      app.whenShown(() => app.listening.playIssue(one));
    };
    const act = (label, title, onclick, disabled = false) =>
      make("button", { title, "aria-label": `${title}: ${describeIssue(issue)}`, disabled, onclick }, label);
    const then = (what) => () => {
      what();
      this.show();
    };
    const buttons = [
      act(left ? `Fix ${left}` : "Fixed", "Fix all", then(() => app.fixAll(issue, open)), !left),
      canBeVariant(issue) && act("Variant", "Accept as a variant", then(() => app.rule(issue, "variant"))),
      act("Hide", "The model's error: hide", then(() => app.rule(issue, "hide"))),
    ];
    return make(
      "tr",
      {},
      make("td", { class: "what" }, ...differenceOf(issue)),
      make("td", {}, places.length.toLocaleString("en")),
      make("td", {}, String(speakers.size)),
      make("td", {}, act("▶", "Play a sample", play)),
      make("td", { class: "buttons" }, ...buttons.filter(Boolean)),
    );
  }

  // What holds everywhere, each with a button that takes it back: rules, and findings that were fixed in all utterances.
  showRules() {
    const { decisions, team } = this.app;
    const rules = rulesOf(decisions).map(([issue, made]) => {
      const by = made.reviewer && made.reviewer !== team.name ? made.reviewer : "";
      const undo = decisions.made.has(ruleId(issue)) && (() => this.app.rule(issue, null));
      return this.settledLine(issue, RULES[made.decision], by, undo);
    });
    const fixes = [...findFixedTogether(decisions)].map(([pattern, rows]) => {
      const issue = rows[0].every.find((one) => patternText(one) === pattern);
      return issue && this.settledLine(issue, `fixed in ${plural(rows.length, "utterance")}`, "", () => this.app.unfixAll(issue, rows));
    });
    const lines = [...rules, ...fixes.filter(Boolean)];
    byName("rules-title").hidden = byName("rules-list").hidden = lines.length === 0;
    byName("rules-list").replaceChildren(headLine("Settled", "As", "By"), ...lines);
  }

  settledLine(issue, as, by, undo) {
    const label = `Take back: ${describeIssue(issue)}`;
    const onclick = () => {
      undo();
      this.show();
    };
    return make(
      "tr",
      {},
      make("td", { class: "what" }, ...differenceOf(issue)),
      make("td", {}, as),
      make("td", {}, make("bdi", {}, by)),
      make("td", {}, undo && make("button", { "aria-label": label, onclick }, "Take back")),
    );
  }
}
