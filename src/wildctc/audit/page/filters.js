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

class Filters {
  constructor(decisions, onchange) {
    this.decisions = decisions;
    this.fillSpeakers();
    byName("whose").hidden = !decisions.team.names.length;
    if (decisions.team.names.length) byName("whose").value = "mine";
    byName("decision").append(...Object.entries(CHOICES).map(([value, text]) => make("option", { value }, text)));
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

  // The rows that pass all filters, most suspicious first. If kinds of findings are chosen, only these count.
  apply() {
    const least = Number(byName("score").value);
    const speaker = byName("speaker").value;
    const choice = byName("decision").value;
    const mine = byName("whose").value && this.decisions.team.name;
    const words = fold(byName("search").value).split(/\s+/).filter(Boolean);
    const kinds = this.boxes.flatMap(({ box }, kind) => (box.checked ? [kind] : []));
    const passing = report.rows.filter(
      (row) =>
        (!speaker || row.speaker === Number(speaker)) &&
        (!mine || this.decisions.team.assigned(row).includes(mine)) &&
        this.decided(row, choice) &&
        words.every((word) => searchText(row).includes(word)),
    );
    this.boxes.forEach(({ count }, kind) => {
      count.textContent = passing
        .filter((row) => row.worst[kind] > 0 && row.worst[kind] >= least)
        .length.toLocaleString("en");
    });
    const score = kinds.length
      ? (row) => Math.max(...kinds.map((kind) => row.worst[kind]))
      : (row) => Math.max(...row.worst);
    const rank = kinds.length ? score : (row) => row.suspicion;
    return passing
      .filter((row) => score(row) >= least && (!kinds.length || score(row) > 0))
      .sort((a, b) => rank(b) - rank(a) || b.suspicion - a.suspicion || a.number - b.number);
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

function searchText(row) {
  row.search ??= fold(`${row.id}\n${row.text}\n${row.heard}\n${speakerName(row)}`);
  return row.search;
}
