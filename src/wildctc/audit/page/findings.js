// Findings as text, and the comparison of the heard words with the written ones.
"use strict";

// A finding as text: what is written, and what was heard.
function differenceOf(issue) {
  const said = (text) => make("bdi", { class: "said" }, text);
  if (issue.kind === "extra") return [make("del", {}, said(issue.written)), " was not said"];
  if (issue.kind === "missing")
    return issue.heard ? [make("ins", {}, said(issue.heard)), " is not written"] : ["a sound is not written"];
  if (issue.heard === issue.written) return [said(issue.written), " is doubtful"];
  return [said(issue.written), " → ", said(issue.heard)];
}

// The same as one string, for people who cannot see the line.
function describeIssue({ kind, written, heard }) {
  if (kind === "extra") return `${written} was not said`;
  if (kind === "missing") return heard ? `${heard} is not written` : "a sound is not written";
  return heard === written ? `${written} is doubtful` : `${heard} instead of ${written}`;
}

// The characters of a text that the model cannot write, each once.
function unknownCharacters(text) {
  const { characters, settings } = report.info;
  report.known ??= new Set(characters);
  const normalizer = settings.normalizer ?? {};
  const given = normalizer.lower ? text.toLowerCase() : text;
  return [...new Set(given.normalize("NFC"))].filter(
    (char) => !/\s/u.test(char) && !report.known.has(char) && !(normalizer.strip_punctuation && /\p{P}/u.test(char)),
  );
}

const nameCharacters = (characters) =>
  characters.slice(0, 5).map((char) => `“${char}”`).join(", ") + (characters.length > 5 ? " and others" : "");

const takeText = (issue) => ({ changed: "Use", extra: "Remove", missing: "Insert" })[issue.kind];

// A line of the list of findings, with buttons to play it and to copy it into the fix.
function findingLine(issue, number, play, take) {
  const sign = make("span", { class: `sign ${issue.kind}`, title: KIND_NAMES[issue.kind] }, KIND_SIGNS[issue.kind]);
  const listen = make(
    "button",
    {
      class: "listen",
      title: "Play",
      "aria-label": `▶ ${seconds(issue.start)}: play ${describeIssue(issue)}`,
      onclick: () => play(number),
    },
    "▶ ",
    make("span", { class: "time" }, seconds(issue.start)),
  );
  const copy = make(
    "button",
    {
      class: "take",
      title: `Copy it into the fix (${number + 1})`,
      "aria-label": `${takeText(issue)} ${number + 1}: ${describeIssue(issue)}`,
      onclick: take,
    },
    takeText(issue),
    " ",
    number < 9 && make("kbd", {}, String(number + 1)),
  );
  copy.hidden = issue.kind === "missing" ? !issue.heard : issue.heard === issue.written;
  const score = make("span", { class: "score", title: "0 to 1" }, issue.score.toFixed(2));
  return make("li", {}, make("span", { class: "what" }, sign, " ", ...differenceOf(issue)), score, listen, copy);
}

// What was heard. Words that are not in the written transcript are marked; all between them is one piece of text.
function heardParts(row) {
  const heard = row.heard.split(" ");
  const same = new Set(commonWords(row.text.split(" "), heard).map(([, place]) => place));
  const parts = [""];
  heard.forEach((word, i) => {
    const text = `${i ? " " : ""}${same.has(i) ? word : ""}`;
    if (typeof parts.at(-1) === "string") parts[parts.length - 1] += text;
    else parts.push(text);
    if (!same.has(i)) parts.push(make("mark", {}, word));
  });
  return parts;
}
