// Where to stop: how the scores are spread, how many of the last decisions were fixes, how many errors are probably left.
"use strict";

const LAST = 50; // decisions of which the yield is shown
const BINS = 15; // of the histogram, from 0.25 to 1
const LOWEST = 0.25; // the lowest score of a finding that is shown

// The kinds and scores of the findings of an utterance that no rule settles.
function findingsOf(row) {
  if (!row.issues || row.issues === row.every) return [row.kinds, row.scores];
  return [row.issues.map(({ kind }) => KINDS.indexOf(kind)), row.issues.map(({ score }) => score)];
}

// What the decisions say about the scores. Decisions on texts that are not read yet are left out.
function calibrationOf(decisions) {
  const judged = [];
  for (const id of new Set([...decisions.made.keys(), ...decisions.others.keys()])) {
    const row = report.byId.get(id);
    if (!row?.every) continue;
    verdictsOf(row, decisions.shown(row)).forEach((right, i) => {
      if (right !== null) judged.push([row.scores[i], row.kinds[i], right]);
    });
  }
  return Object.assign(calibrate(judged), { judged });
}

// The last decisions that a person made one by one; skips judge nothing.
function lastJudgements(decisions) {
  const found = []; // the oldest first
  const note = (made) => {
    if (!Object.hasOwn(DECISIONS, made.decision) || made.decision === "skip") return;
    if (found.length === LAST && made.at <= found[0].at) return;
    if (made.reason?.startsWith(TOGETHER) || made.reason?.startsWith(BULK)) return;
    let place = found.length;
    while (place > 0 && found[place - 1].at > made.at) place--;
    found.splice(place, 0, made);
    if (found.length > LAST) found.shift();
  };
  decisions.made.forEach(note);
  decisions.others.forEach((others) => others.forEach(note));
  return found;
}

class Stopping {
  constructor(app) {
    this.app = app;
    byName("yield").onclick = byName("stop").onclick = () => this.open().catch((error) => say(error.message));
    byName("bulk-score").oninput = () => this.showBulk();
    byName("bulk").onclick = () => this.acceptBelow();
  }

  get bulkScore() {
    return Number(byName("bulk-score").value);
  }

  // The yield of the last decisions, beside the number of decisions.
  showYield() {
    const last = lastJudgements(this.app.decisions);
    byName("yield").hidden = last.length < LAST;
    const fixed = last.filter(({ decision }) => decision === "fix").length;
    const percent = Math.round((100 * fixed) / Math.max(1, last.length));
    byName("yield").textContent = `Last ${LAST}: ${percent}% fixed${percent <= 10 ? ": stop here?" : ""}`;
  }

  async open() {
    await loadTexts();
    this.calibration = calibrationOf(this.app.decisions);
    this.showEstimate();
    this.showHistogram();
    this.showScores();
    this.showBulk();
    byName("stop-dialog").showModal();
  }

  isOpen(row) {
    return !this.app.decisions.shown(row);
  }

  showEstimate() {
    const { decisions } = this.app;
    const last = lastJudgements(decisions);
    const fixed = last.filter(({ decision }) => decision === "fix").length;
    const left = report.rows.filter((row) => this.isOpen(row));
    const [count, spread] = this.calibration.expected(pairsOf(left));
    const [next] = this.calibration.expected(pairsOf(left.slice(0, LAST)));
    const judged = this.calibration.judged.length;
    const lines = [
      last.length
        ? `Of the last ${plural(last.length, "decision")}, ${fixed} were fixes (${Math.round((100 * fixed) / last.length)}%).`
        : "Nothing has been decided one by one yet.",
      `About ${plural(Math.round(count), "error")} left in ${plural(left.length, "utterance")} without a decision` +
        ` (${Math.max(0, Math.round(count - 2 * spread))} to ${Math.round(count + 2 * spread)}),` +
        ` about ${Math.round(next)} of them in the ${LAST} most suspicious.`,
      judged
        ? `Learned from your verdicts on ${plural(judged, "finding")}; without them, the scores themselves are the estimate.`
        : "This is by the scores alone: it will learn from your decisions.",
      `Findings with a score under ${LOWEST} are not counted.`,
    ];
    byName("estimate").replaceChildren(...lines.map((line) => make("li", {}, line)));
  }

  // A bar for each range of scores: findings that were right, wrong, and not judged.
  showHistogram() {
    const bins = this.bins(BINS);
    const most = Math.max(1, ...bins.map(({ all }) => all));
    const bars = bins.map(({ low, high, all, right, wrong }) => {
      const part = (name, count) => make("i", { class: name, "data-share": (100 * count) / most });
      const title = `${low.toFixed(2)} to ${high.toFixed(2)}: ${plural(all, "finding")}, ${right} right, ${wrong} wrong`;
      return make("span", { title }, part("open", all - right - wrong), part("wrong", wrong), part("right", right));
    });
    byName("histogram").replaceChildren(...bars);
    for (const bar of byName("histogram").querySelectorAll("i")) bar.style.height = `${bar.dataset.share}%`;
    const [right, judged] = [bins.reduce((sum, bin) => sum + bin.right, 0), this.calibration.judged.length];
    byName("histogram").setAttribute("aria-label", `Scores of findings: ${right} of ${judged} judged ones were right`);
  }

  bins(count) {
    const width = (1 - LOWEST) / count;
    const bins = Array.from({ length: count }, (_, i) => {
      const [low, high] = [LOWEST + i * width, LOWEST + (i + 1) * width];
      return { low, high, all: 0, right: 0, wrong: 0 };
    });
    const bin = (score) => bins[Math.min(count - 1, Math.max(0, Math.floor((score - LOWEST) / width + 1e-9)))];
    for (const row of report.rows) for (const score of row.scores) bin(score).all++;
    for (const [score, , right] of this.calibration.judged) bin(score)[right ? "right" : "wrong"]++;
    return bins;
  }

  showScores() {
    const cells = (name, values) => make("tr", {}, ...values.map((value) => make(name, name === "th" ? { scope: "col" } : {}, value)));
    const lines = this.bins(5).map(({ low, high, all, right, wrong }) => {
      const middle = (low + high) / 2;
      const share = right + wrong ? `${Math.round((100 * right) / (right + wrong))}%` : "–";
      const expected = KINDS.map((_, kind) => `${Math.round(100 * this.calibration.chance(middle, kind))}%`).join(" ");
      return cells("td", [`${low.toFixed(2)}–${high.toFixed(2)}`, all.toLocaleString("en"), `${right + wrong}`, share, expected]);
    });
    const signs = KINDS.map((kind) => KIND_SIGNS[kind]).join(" ");
    byName("scores").replaceChildren(cells("th", ["Score", "Findings", "Judged", "Right", `Expected ${signs}`]), ...lines);
  }

  below() {
    return report.rows.filter((row) => this.isOpen(row) && worstOf(row, []) < this.bulkScore);
  }

  showBulk() {
    const rows = this.below();
    const [count] = this.calibration.expected(pairsOf(rows));
    byName("bulk-shown").value = this.bulkScore.toFixed(2);
    byName("bulk").textContent = `Accept ${plural(rows.length, "utterance")}`;
    byName("bulk").disabled = !rows.length;
    byName("bulk-cost").textContent = rows.length ? `About ${plural(Math.round(count), "error")} would stay.` : "";
  }

  acceptBelow() {
    const reason = `${BULK}score below ${this.bulkScore.toFixed(2)}`;
    const changes = this.below().map((row) => [row, { decision: "accept", reason }]);
    byName("stop-dialog").close();
    this.app.recordAll(changes, `${plural(changes.length, "utterance")} accepted without listening. u undoes it.`);
  }
}

// The findings [[score, kind]] of some utterances.
const pairsOf = (rows) =>
  rows.flatMap((row) => {
    const [kinds, scores] = findingsOf(row);
    return scores.map((score, i) => [score, kinds[i]]);
  });
