// What decisions say about findings, and what follows for the others. A finding is right if the fix changes its words. From
// the verdicts a logistic regression learns how probable it is that a finding is right, from its score and its kind.
// `wildctc audit --calibrate` does the same (calibration.py).
"use strict";

const TOGETHER = "all: ", BULK = "bulk: "; // how the reason starts of a decision that was made on many utterances at once
const PRIOR = { mean: [0, 1, 0, 0], precision: [0.25, 1, 1, 1] }; // without verdicts, the probability is the score

const patternText = ({ written, heard }) => `${written || "∅"} → ${heard || "∅"}`;

// Whether each finding is right; null if nobody has judged it.
function verdictsOf(row, made) {
  const { every } = row;
  if (!made || made.decision === "skip" || made.reason?.startsWith(BULK)) return every.map(() => null);
  if (made.decision === "accept") return every.map(() => false);
  if (made.reason?.startsWith(TOGETHER)) {
    const named = made.reason.slice(TOGETHER.length).split("; ");
    return every.map((issue) => (named.includes(patternText(issue)) ? true : null));
  }
  return changedPlaces(row.text.split(" "), made.fixed.split(/\s+/).filter(Boolean), every);
}

function changedPlaces(written, fixed, issues) {
  const place = new Map([[-1, -1], ...commonWords(written, fixed), [written.length, fixed.length]]);
  const known = [...place.keys()];
  return issues.map((issue) => {
    const count = issue.written ? issue.written.split(/\s+/).length : 0;
    if (issue.kind !== "missing") return Array.from({ length: count }, (_, i) => issue.word + i).some((w) => !place.has(w));
    const before = known.findLast((word) => word < issue.word);
    const after = known.find((word) => word >= issue.word);
    return place.get(after) - place.get(before) > after - before;
  });
}

const features = (score, kind) => {
  const s = Math.min(0.99, Math.max(0.01, score));
  return [1, Math.log(s / (1 - s)), kind === 1 ? 1 : 0, kind === 2 ? 1 : 0];
};
const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
const sigmoid = (x) => 1 / (1 + Math.exp(-x));

// judged: [[score, number of the kind, whether it is right]]. Returns {weights, chance(score, kind), expected(findings)}.
function calibrate(judged) {
  const data = judged.map(([score, kind, right]) => [features(score, kind), right ? 1 : 0]);
  let weights = [...PRIOR.mean];
  let hessian;
  for (let round = 0; round < 100; round++) {
    hessian = PRIOR.precision.map((value, i) => PRIOR.precision.map((_, k) => (i === k ? value : 0)));
    const slope = weights.map((value, i) => PRIOR.precision[i] * (value - PRIOR.mean[i]));
    for (const [x, y] of data) {
      const p = sigmoid(dot(x, weights));
      for (let i = 0; i < 4; i++) {
        slope[i] += x[i] * (p - y);
        for (let k = 0; k < 4; k++) hessian[i][k] += p * (1 - p) * x[i] * x[k];
      }
    }
    const step = solve(hessian, slope);
    const size = Math.max(1, ...step.map(Math.abs));
    weights = weights.map((value, i) => value - step[i] / size);
    if (Math.max(...step.map(Math.abs)) < 1e-9) break;
  }
  const chance = (score, kind) => sigmoid(dot(features(score, kind), weights));
  return { weights, chance, expected: (findings) => expectedOf(findings, weights, hessian) };
}

// How many of some findings [[score, kind]] are right, and the standard deviation of that.
function expectedOf(findings, weights, hessian) {
  let count = 0,
    variance = 0;
  const slope = [0, 0, 0, 0];
  for (const [score, kind] of findings) {
    const x = features(score, kind);
    const p = sigmoid(dot(x, weights));
    count += p;
    variance += p * (1 - p);
    for (let i = 0; i < 4; i++) slope[i] += p * (1 - p) * x[i];
  }
  return [count, Math.sqrt(variance + dot(slope, solve(hessian, slope)))];
}

// The solution of a small system of linear equations with a positive definite matrix.
function solve(matrix, right) {
  const a = matrix.map((line, i) => [...line, right[i]]);
  const n = a.length;
  for (let i = 0; i < n; i++)
    for (let k = i + 1; k < n; k++) {
      const factor = a[k][i] / a[i][i];
      for (let j = i; j <= n; j++) a[k][j] -= factor * a[i][j];
    }
  const x = new Array(n).fill(0);
  for (let i = n - 1; i >= 0; i--) {
    let rest = a[i][n];
    for (let j = i + 1; j < n; j++) rest -= a[i][j] * x[j];
    x[i] = rest / a[i][i];
  }
  return x;
}
