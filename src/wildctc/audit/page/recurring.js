// Findings that recur: the same words written, and the same heard, in several places. They are fixed once for all.
"use strict";

const RECURRING = { listed: 200, least: 0.5, sign: "all: " }; // findings that are listed; the least score; how a reason starts

const patternOf = ({ kind, written, heard }) => [kind, written, heard].join("\t");
const patternText = ({ written, heard }) => `${written || "∅"} → ${heard || "∅"}`;

// The findings with a different text, by what is written and heard; the most frequent first.
function findRecurring() {
  const found = new Map(); // pattern → {issue, places: [[row, number of the finding]], speakers}
  for (const row of report.rows)
    row.issues.forEach((issue, number) => {
      if (issue.score < RECURRING.least || issue.written === issue.heard || (!issue.written && !issue.heard)) return;
      const key = patternOf(issue);
      if (!found.has(key)) found.set(key, { issue, places: [], speakers: new Set() });
      found.get(key).places.push([row, number]);
      found.get(key).speakers.add(row.speaker);
    });
  return [...found.values()].filter(({ places }) => places.length > 1).sort((a, b) => b.places.length - a.places.length);
}

// The findings of an utterance that were fixed with all others of their kind, as its decision says.
const fixedWithOthers = (made) =>
  made?.reason?.startsWith(RECURRING.sign) ? made.reason.slice(RECURRING.sign.length).split("; ") : [];

// Whether an utterance was fixed only as one of many, and has other findings, which nobody has listened to.
const isPartlyFixed = (row, made) => {
  const done = fixedWithOthers(made);
  return done.length > 0 && row.issues.some((issue) => issue.score >= RECURRING.least && !done.includes(patternText(issue)));
};

// The decision that fixes one more recurring finding of an utterance; null if a person has decided already.
function fixOneMore(row, made, issue) {
  if (made && !fixedWithOthers(made).length) return null;
  const done = [...new Set([...fixedWithOthers(made), patternText(issue)])];
  let text = row.text;
  const chosen = row.issues.filter((one) => one.score >= RECURRING.least && done.includes(patternText(one)));
  for (const { begin, stop, heard } of chosen.sort((a, b) => b.begin - a.begin || b.stop - a.stop))
    text = `${text.slice(0, begin)} ${heard} ${text.slice(stop)}`;
  text = text.split(/\s+/).filter(Boolean).join(" ");
  return text ? { decision: "fix", fixed: text, reason: RECURRING.sign + done.join("; ") } : null;
}

// The dialog. act: the application, with play(row, number) and fixAll(issue, rows).
function showRecurring(app) {
  const found = findRecurring();
  const items = found.slice(0, RECURRING.listed).map(({ issue, places, speakers }) => {
    const count = make("td", {}, places.length.toLocaleString("en"));
    const rows = [...new Set(places.map(([row]) => row))];
    const open = () => rows.filter((row) => fixOneMore(row, app.decisions.of(row), issue));
    let sample = 0;
    const play = () => {
      const [row, number] = places[sample++ % places.length];
      app.choose(row);
      app.playFinding(number);
    };
    const fix = make("button", {
      "aria-label": `Fix all: ${describeIssue(issue)}`,
      onclick: () => {
        app.fixAll(issue, open());
        fix.disabled = true;
        fix.textContent = "Fixed (u undoes)";
      },
    }, `Fix ${open().filter((row) => !fixedWithOthers(app.decisions.of(row)).includes(patternText(issue))).length}`);
    fix.disabled = fix.textContent === "Fix 0";
    const listen = make("button", { "aria-label": `Play a sample: ${describeIssue(issue)}`, onclick: play }, "▶");
    const what = make("td", { class: "what" }, ...differenceOf(issue));
    return make("tr", {}, what, count, make("td", {}, String(speakers.size)), make("td", {}, listen, " ", fix));
  });
  const head = ["Written → heard", "Times", "Speakers", ""].map((text) => make("th", {}, text));
  byName("recurring-list").replaceChildren(make("tr", {}, ...head), ...items);
  byName("recurring-none").hidden = items.length > 0;
  byName("recurring-dialog").showModal();
}
