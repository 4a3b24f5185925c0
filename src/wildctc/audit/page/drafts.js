// Fixes that were begun and not saved. They are in the browser's storage from the first letter on, so that Esc, a reload
// or a crash loses none of them.
"use strict";

class Drafts {
  constructor(key) {
    this.prefix = `wildctc-audit-draft/${key}/`;
    this.unstored = new Map(); // id → text, if the browser cannot store it
  }

  of(row) {
    if (this.unstored.has(row.id)) return this.unstored.get(row.id);
    try {
      return localStorage.getItem(this.prefix + row.id);
    } catch {
      return null;
    }
  }

  // text: null removes the draft.
  set(row, text) {
    this.unstored.delete(row.id);
    try {
      if (text === null) localStorage.removeItem(this.prefix + row.id);
      else localStorage.setItem(this.prefix + row.id, text);
    } catch {
      if (text !== null) this.unstored.set(row.id, text);
    }
  }
}
