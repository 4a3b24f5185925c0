// Chooses the utterances that the list shows, and their order.
"use strict";

const CHOICES = {
  all: "All decisions",
  undecided: "Undecided",
  accept: "Accepted",
  fix: "Fixed",
  skip: "Skipped",
  conflict: "In conflict",
};

// Orders of the list. `suspicion` is that of the report.
const ORDERS = {
  suspicion: "Most suspicious first",
  chance: "Most errors expected first",
  unsure: "Least certain first",
  place: "As in the manifest",
  length: "Shortest first",
  speaker: "By speaker",
  recent: "Newest decision first",
};

class Filters {
  constructor(decisions, onchange) {
    this.decisions = decisions;
    this.fillSpeakers();
    byName("whose").hidden = !decisions.team.names.length;
    if (decisions.team.names.length) byName("whose").value = "mine";
    byName("decision").append(...Object.entries(CHOICES).map(([value, text]) => make("option", { value }, text)));
    byName("order").append(...Object.entries(ORDERS).map(([value, text]) => make("option", { value }, text)));
    this.boxes = KINDS.map((kind) => {
      const box = make("input", { type: "checkbox", value: kind });
      const count = make("span", { class: "count" });
      const label = make("label", { class: `kind ${kind}` }, box, `${KIND_SIGNS[kind]} ${KIND_NAMES[kind]} `, count);
      byName("kinds").append(label);
      return { box, count };
    });
    byName("filters").addEventListener("submit", (event) => event.preventDefault());
    this.onchange = onchange;
    byName("filters").addEventListener("input", () => this.changed());
    byName("more").onclick = () => {
      const open = byName("filters").classList.toggle("open");
      byName("more").setAttribute("aria-expanded", String(open));
    };
  }

  changed() {
    byName("score-shown").value = byName("score").value;
    const used = [byName("speaker").value, byName("whose").value, byName("decision").value !== "all", Number(byName("score").value)];
    const count = used.filter(Boolean).length + this.boxes.filter(({ box }) => box.checked).length;
    byName("more").textContent = count ? `Filters (${count})` : "Filters";
    this.onchange();
  }

  clear() {
    byName("search").value = byName("speaker").value = byName("whose").value = "";
    byName("decision").value = "all";
    byName("score").value = 0;
    byName("order").value = "suspicion";
    for (const { box } of this.boxes) box.checked = false;
    this.changed();
  }

  fillSpeakers() {
    const counts = new Map();
    for (const row of report.rows) counts.set(row.speaker, (counts.get(row.speaker) ?? 0) + 1);
    const name = (number) => report.info.speakers[number] || "unknown speaker";
    const numbers = [...counts.keys()].sort((a, b) => name(a).localeCompare(name(b), undefined, { numeric: true }));
    byName("speaker").append(make("option", { value: "" }, `All speakers (${counts.size})`));
    for (const n of numbers) byName("speaker").append(make("option", { value: n }, `${name(n)} (${counts.get(n)})`));
  }

  // The rows that pass all filters, in the chosen order. If kinds of findings are chosen, only these count.
  apply() {
    const least = Number(byName("score").value);
    const kinds = this.boxes.flatMap(({ box }, kind) => (box.checked ? [kind] : []));
    const tests = this.tests();
    const counts = [0, 0, 0];
    const rows = [];
    for (const row of report.rows) {
      if (!tests.every((test) => test(row))) continue;
      for (let kind = 0; kind < 3; kind++) if (row.worst[kind] > 0 && row.worst[kind] >= least) counts[kind]++;
      const score = least || kinds.length ? worstOf(row, kinds) : 1;
      if (score >= least && score > 0) rows.push(row);
    }
    this.boxes.forEach(({ count }, kind) => {
      count.textContent = counts[kind].toLocaleString("en");
    });
    return this.sorted(rows, kinds);
  }

  // What a row must fulfil: a test for each filter that is used.
  tests() {
    const speaker = byName("speaker").value;
    const choice = byName("decision").value;
    const mine = byName("whose").value && this.decisions.team.name;
    const words = this.words();
    const tests = [];
    if (speaker) tests.push((row) => row.speaker === Number(speaker));
    if (mine) tests.push((row) => this.decisions.team.assigned(row).includes(mine));
    if (choice !== "all") tests.push((row) => this.decided(row, choice));
    if (words.length) tests.push((row) => words.every((word) => searchText(row).includes(word)));
    return tests;
  }

  // The words of the search. They are found once all texts are there.
  words() {
    const words = fold(byName("search").value).split(/\s+/).filter(Boolean);
    if (words.length && !report.complete) loadTexts().then(() => this.onchange(), (error) => say(error.message));
    return report.complete ? words : [];
  }

  sorted(rows, kinds) {
    const order = byName("order").value;
    if (order === "suspicion" && kinds.length) return byThousandths(rows, (row) => worstOf(row, kinds));
    if (order === "suspicion" && !hidden.size) return rows; // as they are in the report
    if (Object.hasOwn(FIXED_ORDERS, order)) return inOrder(rows, order);
    const keys = {
      suspicion: (row) => row.suspicion,
      chance: (row) => this.estimate(row, (p) => p),
      unsure: (row) => this.estimate(row, (p) => p * (1 - p)),
      recent: (row) => Date.parse(this.decisions.shown(row)?.at ?? 0) || 0,
    };
    this.chance = ["chance", "unsure"].includes(order) ? calibrationOf(this.decisions).chance : null;
    return sortBy(rows, keys[order]);
  }

  // The sum of something over the findings of an utterance, by the probability that they are right.
  estimate(row, value) {
    const [kinds, scores] = findingsOf(row);
    return scores.reduce((sum, score, i) => sum + value(this.chance(score, kinds[i])), 0);
  }

  get byDecision() {
    return byName("order").value === "recent";
  }

  // What is above the list.
  describe(count) {
    const total = plural(report.rows.length, "utterance");
    if (byName("search").value && !report.complete) return "Reading all texts…";
    const order = ORDERS[byName("order").value];
    return this.narrowed ? `${count.toLocaleString("en")} of ${total}` : `${total}, ${order.toLowerCase()}`;
  }

  decided(row, choice) {
    if (choice === "all") return true;
    if (choice === "undecided") return this.decisions.isOpen(row);
    if (choice === "conflict") return this.decisions.inConflict(row);
    return this.decisions.shown(row)?.decision === choice;
  }

  get narrowed() {
    return (
      this.boxes.some(({ box }) => box.checked) ||
      Number(byName("score").value) > 0 ||
      ["search", "speaker", "whose"].some((id) => byName(id).value) ||
      byName("decision").value !== "all"
    );
  }
}

const fold = (text) => text.normalize("NFC").toLowerCase();

// Orders that no decision changes. All rows are sorted once.
const FIXED_ORDERS = { place: (row) => -row.place, length: (row) => -row.duration, speaker: (row) => -row.speaker };

function inOrder(rows, order) {
  report.orders ??= {};
  report.orders[order] ??= sortBy(report.rows, FIXED_ORDERS[order]);
  if (rows.length === report.rows.length) return [...report.orders[order]];
  const inside = new Set(rows);
  return report.orders[order].filter((row) => inside.has(row));
}

// Sort by a number, the largest first; equal ones keep their order.
function sortBy(rows, value) {
  const values = Float64Array.from(rows, value);
  const places = Uint32Array.from(rows, (_, i) => i);
  return Array.from(places.sort((i, k) => values[k] - values[i] || i - k), (i) => rows[i]);
}

// Sort by a number from 0 to 1 with three digits, the largest first; equal ones keep their order.
function byThousandths(rows, value) {
  const found = Array.from({ length: 1001 }, () => []);
  for (const row of rows) found[1000 - Math.round(1000 * value(row))].push(row);
  return found.flat();
}

// The worst score of some kinds of findings; of all, if none is named.
function worstOf({ worst }, kinds) {
  let score = 0;
  for (let kind = 0; kind < 3; kind++)
    if (worst[kind] > score && (!kinds.length || kinds.includes(kind))) score = worst[kind];
  return score;
}

function searchText(row) {
  row.search ??= fold(`${row.id}\n${row.text}\n${row.heard}\n${speakerName(row)}`);
  return row.search;
}
