// Who reviews: the name of this reviewer, whose utterances are whose, and who did how much.
"use strict";

const REVIEWER = "wildctc-audit-reviewer";

// A number from 0 to 1 that depends on a text only (FNV-1a, then mixed): a share of utterances, the same on every page.
function fraction(text) {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) hash = Math.imul(hash ^ byte, 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return ((hash ^ (hash >>> 16)) >>> 0) / 2 ** 32;
}

class Team {
  constructor() {
    this.served = isServed();
    const { shares = {}, double = 0 } = JSON.parse(document.documentElement.dataset.server || "{}");
    this.shares = shares;
    this.double = double;
    try {
      this.name = localStorage.getItem(REVIEWER) ?? "";
    } catch {
      this.name = "";
    }
    if (this.names.length && !this.names.includes(this.name)) this.name = "";
  }

  get names() {
    return Object.keys(this.shares);
  }

  // The reviewers who should decide on an utterance; none if everybody may.
  assigned(row) {
    if (!this.names.length) return [];
    row.assigned ??= this.assign(row.id);
    return row.assigned;
  }

  assign(id) {
    const first = this.choose(this.names, fraction(id));
    if (fraction(`${id}\0double`) >= this.double) return [first];
    const rest = this.names.filter((name) => name !== first);
    return [first, this.choose(rest, fraction(`${id}\0second`))];
  }

  choose(names, place) {
    let left = place * names.reduce((sum, name) => sum + this.shares[name], 0);
    return names.find((name) => (left -= this.shares[name]) < 0) ?? names.at(-1);
  }

  // Ask for the name until there is one. Resolves when it is known.
  async ask() {
    const dialog = byName("who");
    const list = byName("who-names");
    const field = byName("who-name");
    list.replaceChildren(...this.names.map((name) => make("option", { value: name })));
    byName("who-known").textContent = this.names.length ? `One of: ${this.names.join(", ")}.` : "";
    field.value = this.name;
    dialog.showModal();
    dialog.oncancel = (event) => this.name || event.preventDefault();
    await new Promise((resolve) => {
      byName("who-form").onsubmit = (event) => {
        event.preventDefault();
        const name = field.value.trim();
        const known = !this.names.length || this.names.includes(name);
        field.setCustomValidity(name && known ? "" : "Give a name of the list.");
        if (!field.reportValidity()) return;
        this.name = name;
        dialog.close();
      };
      field.oninput = () => field.setCustomValidity("");
      dialog.onclose = resolve;
    });
    try {
      localStorage.setItem(REVIEWER, this.name);
    } catch {
      // it then holds until the page is closed
    }
  }
}

// What other reviewers decided, below each other. adopt(made): this reviewer decides the same.
function showOthers(element, own, others, adopt) {
  element.hidden = !others.length;
  const items = others.map((made) => {
    const same = own && sameDecision(own, made);
    const label = `Decide as ${made.reviewer} did`;
    return make(
      "li",
      { class: own && !same ? "conflict" : "" },
      make("bdi", { class: "said" }, made.reviewer),
      ` ${DECISIONS[made.decision]}${made.fixed ? ": " : ""}`,
      made.fixed && make("bdi", {}, made.fixed),
      " ",
      same ? "✓ as you" : make("button", { "aria-label": label, title: label, onclick: () => adopt(made) }, "Take"),
    );
  });
  element.replaceChildren(...items);
}

// Who did how much, and how well reviewers agree: the server computes it.
async function showTeam() {
  const dialog = byName("team-dialog");
  const answer = await (await fetch("api/summary")).json();
  const line = (name, cells) => make("tr", {}, ...cells.map((cell) => make(name, {}, String(cell))));
  const number = (value, digits) => (value === null ? "–" : value.toFixed(digits));
  const people = Object.entries(answer.reviewers).map(([name, counts]) => {
    const { accept = 0, fix = 0, skip = 0 } = counts;
    return line("td", [name, accept + fix + skip, accept, fix, skip, number(answer.hourly[name], 0)]);
  });
  byName("team-people").replaceChildren(
    line("th", ["Reviewer", "Decisions", "Accepted", "Fixed", "Skipped", "Per hour"]),
    ...people,
  );
  const pairs = answer.pairs.map(([a, b, both, share, kappa]) =>
    line("td", [`${a}, ${b}`, both, `${(100 * share).toFixed(1)}%`, number(kappa, 2)]),
  );
  byName("team-pairs").hidden = !pairs.length;
  byName("team-pairs").replaceChildren(line("th", ["Two reviewers", "Both decided", "Agree", "κ"]), ...pairs);
  byName("team-conflicts").textContent = `${plural(answer.conflicts, "conflict")}`;
  dialog.showModal();
}
