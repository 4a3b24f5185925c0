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

// The indices of the words of `heard` that are in the longest common subsequence with `written`.
function commonWords(written, heard) {
  const [n, m] = [written.length, heard.length];
  const length = Array.from({ length: n + 1 }, () => new Uint16Array(m + 1));
  for (let i = n - 1; i >= 0; i--)
    for (let j = m - 1; j >= 0; j--)
      length[i][j] = written[i] === heard[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  const same = new Set();
  for (let i = 0, j = 0; i < n && j < m;) {
    if (written[i] === heard[j]) {
      same.add(j);
      i++;
      j++;
    } else if (length[i + 1][j] >= length[i][j + 1]) i++;
    else j++;
  }
  return same;
}
