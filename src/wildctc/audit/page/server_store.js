// Keeps decisions on the server that gave this page, which has those of all reviewers. What the server has not confirmed
// yet is also in the browser's storage, and is sent until it is confirmed: a reload or a restart of the server loses
// nothing.
"use strict";

const SERVER = { poll: 2000, retry: 1000, batch: 500 }; // milliseconds, and changes in a request

class ServerStore {
  // team: who reviews. onstate(): what is saved has changed.
  constructor(key, team, onstate = () => {}) {
    this.prefix = `wildctc-audit-outbox/${key}/`;
    this.team = team;
    this.onstate = onstate;
    this.queue = new Map(); // key → change that is not confirmed
    this.numbers = new Map(); // id → number of this reviewer's last change that is known
    this.last = 0; // the number of the last change of anybody that is known
    this.polling = false;
    this.answers = true; // whether the server answers
    this.kept = true;
    this.unreadable = 0;
  }

  get waiting() {
    return new Set([...this.queue.values()].map(({ id }) => id));
  }

  showState() {
    const count = this.queue.size.toLocaleString("en");
    const unsaved = this.queue.size ? `: ${count} not saved yet` : "";
    byName("saved").className = this.answers ? "" : "warning";
    if (!this.answers) byName("saved").textContent = `No answer from the server${unsaved}`;
    else byName("saved").textContent = this.queue.size ? `Saving ${count}…` : "All saved";
  }

  async open(take) {
    this.take = take;
    await this.poll(false);
    this.readOutbox();
    this.send();
    setInterval(() => this.poll(true).catch(() => {}), SERVER.poll);
  }

  // Changes that were not confirmed before the page was closed.
  readOutbox() {
    try {
      for (let i = 0; i < localStorage.length; i++) {
        const name = localStorage.key(i);
        if (!name.startsWith(this.prefix)) continue;
        const change = JSON.parse(localStorage.getItem(name));
        this.queue.set(change.key, change);
        if (change.reviewer === this.team.name) this.take(change.id, change.decision ? change : null, true, false);
      }
    } catch {
      this.unreadable++;
    }
  }

  save(row, made) {
    const { decision = null, fixed, reason, comment } = made ?? {};
    const key = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
    const change = { key, id: row.id, text: row.text, decision, fixed, reason, comment, reviewer: this.team.name };
    this.queue.set(key, change);
    this.store(key, change);
    this.onstate();
    this.send();
  }

  store(key, change) {
    try {
      if (change) localStorage.setItem(this.prefix + key, JSON.stringify(change));
      else localStorage.removeItem(this.prefix + key);
    } catch {
      // it is still in the queue
    }
  }

  async send() {
    if (this.sending || !this.queue.size) return;
    this.sending = true;
    const changes = [...this.queue.values()].slice(0, SERVER.batch);
    try {
      const answer = await this.request({ method: "POST", body: JSON.stringify(changes) });
      for (const { key, id, number } of answer.rows) {
        this.isNews(id, number);
        this.queue.delete(key);
        this.store(key, null);
      }
    } catch (error) {
      say(error.message);
      await new Promise((resolve) => setTimeout(resolve, SERVER.retry));
    }
    this.sending = false;
    this.onstate();
    this.send();
  }

  // Ask for what others, and other windows, have decided. One question at a time: answers are in the order of changes.
  async poll(live) {
    if (this.polling) return;
    this.polling = true;
    try {
      this.read(await this.request({}, this.last ? `?after=${this.last}` : ""), live);
    } finally {
      this.polling = false;
    }
  }

  // Whether a change of this reviewer is later than what is known of the utterance.
  isNews(id, number) {
    if (number <= (this.numbers.get(id) ?? 0)) return false;
    this.numbers.set(id, number);
    return true;
  }

  read(answer, live) {
    this.last = answer.last;
    const { waiting } = this;
    for (const row of answer.rows) {
      const known = report.byId.get(row.id);
      const mine = row.reviewer === this.team.name;
      const about = isRuleId(row.id) || (known && isAbout(known, row.text));
      if (!about || (mine && (!this.isNews(row.id, row.number) || waiting.has(row.id)))) continue;
      const { decision, fixed, at, reviewer, reason, comment } = row;
      const made = { decision, fixed, at, reviewer, reason, comment };
      this.take(row.id, mine && !decision ? null : made, mine, live);
    }
  }

  async request(options, query = "") {
    let response;
    try {
      response = await fetch(`api/decisions${query}`, options);
    } catch {
      this.answers = false;
      this.onstate();
      throw new Error("The server does not answer. Decisions are kept in this browser until it does.");
    }
    if (!this.answers) this.onstate((this.answers = true));
    const answer = await response.json();
    if (!response.ok) throw new Error(`The server refused a decision: ${answer.error}`);
    return answer;
  }
}
