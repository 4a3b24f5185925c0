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
