// Keeps decisions in the browser, with one entry for each utterance, so that two windows do not overwrite each other's
// decisions. All pages opened from disk share one store, so each entry starts with the report's key.
"use strict";

class BrowserStore {
  constructor(key) {
    this.prefix = `wildctc-audit/${key}/`;
    this.waiting = new Set(); // ids whose last change could not be stored
    this.unreadable = 0; // stored entries that are no decisions
    this.kept = true; // whether the browser has a store at all
  }

  async open(take) {
    try {
      for (let i = 0; i < localStorage.length; i++) this.read(localStorage.key(i), take, false);
    } catch {
      this.kept = false;
    }
    window.addEventListener("storage", (event) => event.key !== null && this.read(event.key, take, true));
  }

  read(name, take, live) {
    if (!name.startsWith(this.prefix)) return;
    const id = name.slice(this.prefix.length);
    const value = localStorage.getItem(name);
    if (!report.byId.has(id) && !isRuleId(id)) return;
    if (value === null) return void take(id, null, true, live);
    let decision = null;
    try {
      decision = JSON.parse(value);
    } catch {
      // counted below
    }
    if (isDecision(decision)) take(id, decision, true, live);
    else this.unreadable++;
  }

  save(row, decision) {
    try {
      if (decision) localStorage.setItem(this.prefix + row.id, JSON.stringify(decision));
      else localStorage.removeItem(this.prefix + row.id);
      this.waiting.delete(row.id);
    } catch {
      this.waiting.add(row.id);
    }
  }
}
