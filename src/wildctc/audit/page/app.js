// The application: connects the parts of the page, keeps the chosen utterance, and makes decisions.
"use strict";

const LATER = 1000; // milliseconds after which the texts are read that are not needed at once

class App {
  constructor(decisions, team) {
    this.row = null;
    this.failed = false; // whether its data could not be read
    this.decisions = decisions;
    this.team = team;
    decisions.onchange = (ids) => this.changedElsewhere(ids);
    this.drafts = new Drafts(report.info.key);
    this.history = []; // for undo: lists of [row, its decision before]
    this.undone = []; // for redo
    this.filters = new Filters(this.decisions, () => this.refilter());
    this.listening = new Listening(this);
    this.player = this.listening.player;
    this.detail = new Detail(byName("detail"), this);
    this.list = new VirtualList(
      byName("list"),
      (element, row) => showRow(element, row, this.decisions.shown(row), this.drafts.of(row) !== null, team.name),
      (row, event) => this.clicked(row, event),
    );
    this.recurring = new Recurring(this);
    this.stopping = new Stopping(this);
    this.keyboard = new Keyboard(this);
    byName("name").textContent = report.info.name;
    document.title = `${report.info.name} – audit`;
    byName("export").onclick = byName("unstored").onclick = () => this.export();
    byName("load").onclick = () => byName("file").click();
    byName("file").onchange = (event) => this.load(event.target);
    byName("help").onclick = () => byName("about").showModal();
    byName("show-all").onclick = () => {
      this.filters.clear();
      this.focus();
    };
    fillHelp();
    if (team.served) this.showServer();
    this.takeRules();
    this.refilter();
    this.choose(this.list.rows.find((row) => this.decisions.isOpen(row)) ?? this.list.rows[0]);
    this.focus();
    if (!this.decisions.store.kept) say("This browser cannot store decisions: export them before you close the page.");
    else if (this.decisions.store.unreadable)
      say(`The browser's store is damaged: ${plural(this.decisions.store.unreadable, "decision")} cannot be read.`);
    if (this.needsTexts()) setTimeout(() => this.readTexts(), report.complete ? 0 : LATER);
  }

  readTexts() {
    loadTexts().then(() => this.textsArrived(), (error) => say(error.message));
  }

  // With a server, all texts are read only if something needs them.
  needsTexts() {
    if (report.complete) return false;
    return !this.team.served || hidden.size > 0 || [...this.decisions.made.values()].some((made) => fixedWithOthers(made).length);
  }

  textsArrived() {
    if (hidden.size || byName("decision").value !== "all") this.refilter(true);
    this.showProgress();
  }

  // What only a page from a server has: names, and whether all is saved.
  showServer() {
    for (const id of ["saved", "reviewer", "team"]) byName(id).hidden = false;
    byName("reviewer").textContent = this.team.name;
    byName("reviewer").onclick = () => this.team.ask().then(() => location.reload());
    byName("team").onclick = () => showTeam().catch((error) => say(error.message));
    byName("where-stored").textContent = "Decisions are stored by the server, with your name. Others see them at once.";
    this.decisions.store.onstate = () => this.decisions.store.showState();
    this.decisions.store.showState();
  }

  // The focus goes to the fix, if one is being typed; else to the list.
  focus() {
    if (this.detail.editing) this.detail.editor.text.focus();
    else byName("list").focus();
  }

  // stay: keep the utterance that is shown, even if it is no longer in the list.
  refilter(stay = false) {
    const rows = this.filters.apply();
    this.list.setRows(rows, this.row);
    byName("count").textContent = this.filters.describe(rows.length);
    byName("empty").hidden = rows.length > 0;
    if (!rows.includes(this.row) && !(this.row && (stay || this.detail.editing)))
      if (rows.length) this.choose(rows[0]);
      else this.chooseNone();
    this.showProgress();
  }

  showProgress() {
    const { accept, fix, skip } = this.decisions.counts();
    const done = accept + fix + skip;
    byName("progress").textContent =
      `${done.toLocaleString("en")} of ${report.rows.length.toLocaleString("en")} decided`;
    byName("progress").title = `${accept} accepted, ${fix} fixed, ${skip} skipped`;
    byName("export").disabled = this.decisions.made.size + this.decisions.others.size === 0;
    const lost = this.team.served ? 0 : this.decisions.unstored.size;
    byName("unstored").hidden = lost === 0;
    byName("unstored").textContent = `${lost.toLocaleString("en")} not stored: export`;
    this.stopping.showYield();
  }

  clicked(row, event) {
    this.choose(row);
    const word = event.target.closest("[data-word]")?.dataset.word;
    if (word !== undefined) this.whenShown(() => this.listening.playWord(Number(word)));
  }

  choose(row) {
    if (!row || (row === this.row && !this.failed)) return;
    this.failed = false;
    this.player.stop();
    this.row = row;
    this.list.choose(row);
    const rank = [this.list.rows.indexOf(row) + 1, this.list.rows.length]
      .map((n) => n.toLocaleString("en"))
      .join(" of ");
    this.shown = this.detail.show(row, rank).then((shown) => shown && this.listening.begin());
    this.shown.catch((error) => {
      this.failed = row === this.row; // it can be chosen again
      say(error.message);
    });
  }

  // Do something with the chosen utterance as soon as it is shown: at once, if it is.
  whenShown(act) {
    if (!this.row || this.detail.detail) act();
    else this.shown.then(() => this.whenShown(act), () => {});
  }

  // Whether the chosen utterance is shown, so that it can be judged. Says so, if it is not.
  isShown() {
    if (!this.detail.detail) say("This utterance is not shown yet: nothing was decided. Press again when it is.");
    return this.detail.detail !== null;
  }

  // The list is empty: nothing is shown, so nothing can be decided.
  chooseNone() {
    this.player.stop();
    this.row = null;
    this.detail.hide();
  }

  move(step) {
    const { rows, chosen } = this.list;
    this.choose(rows[Math.min(rows.length - 1, Math.max(0, chosen + step))]);
  }

  // The next utterance of the list that this reviewer still has to decide on.
  moveToOpen() {
    const { rows, chosen } = this.list;
    const open = (row) => this.decisions.isOpen(row);
    const next = rows.slice(chosen + 1).find(open) ?? rows.find(open);
    if (next && next !== this.row) this.choose(next);
    else say("No other utterance of the list is undecided.");
  }

  // Make a decision and show the next utterance. The same decision once more only goes on.
  decide(name, reason) {
    if (!this.isShown()) return;
    if (name === "fix") return this.detail.openEditor();
    const made = this.decisions.of(this.row);
    if (made?.decision !== name || (reason && made.reason !== reason)) return this.record({ decision: name, reason }, 1);
    if (this.list.chosen + 1 < this.list.rows.length) this.move(1);
    else say(`This utterance is ${DECISIONS[name]} already, and it is the last of the list. u undoes a decision.`);
  }

  // Change many decisions; one undo takes all of them back. changes: [[row, decision]].
  recordAll(changes, message) {
    if (!changes.length) return;
    this.history.push(changes.map(([row, decision]) => [row, this.decisions.set(row, decision)]));
    this.undone = [];
    this.changed(changes.map(([row]) => row));
    say(message);
  }

  // Fix a recurring finding in all these utterances.
  fixAll(issue, rows) {
    const fixes = rows.map((row) => [row, fixOneMore(row, this.decisions.of(row), issue)]);
    this.recordAll(fixes, `${plural(rows.length, "utterance")} fixed: ${patternText(issue)}. u undoes it.`);
  }

  // Take this back; what else was fixed in these utterances stays.
  unfixAll(issue, rows) {
    const left = (row) => fixedWithOthers(this.decisions.of(row)).filter((pattern) => pattern !== patternText(issue));
    const changes = rows.map((row) => [row, fixTogether(row, this.decisions.of(row), left(row))]);
    this.recordAll(changes, `${patternText(issue)}: no longer fixed in ${plural(rows.length, "utterance")}. u undoes it.`);
  }

  // Make a rule about a recurring finding: "variant" or "hide"; null takes it back.
  rule(issue, name) {
    const decision = name && { decision: name, fixed: issue.heard };
    const what = name ? RULES[name] : "no longer settled";
    this.recordAll([[ruleRow(ruleId(issue)), decision]], `${patternText(issue)}: ${what}. u undoes it.`);
  }

  takeRules() {
    setRules(rulesOf(this.decisions));
    if (hidden.size && !report.complete) loadTexts().then(() => this.refilter(true), (error) => say(error.message));
  }

  // Take over what another reviewer decided.
  adopt(made) {
    this.detail.closeEditor();
    this.record({ decision: made.decision, fixed: made.fixed, reason: made.reason }, 0);
  }

  // A click on the button of the decision that was made takes it back.
  toggle(name) {
    if (name === "fix" || this.decisions.of(this.row)?.decision !== name) return this.decide(name);
    this.record(null, 0);
    say(`No longer ${DECISIONS[name]}. u brings it back.`);
  }

  save(text) {
    if (!text) return say("A fix needs at least one word. If nothing is said in the utterance, skip it: nothing said.");
    if (this.detail.mustConfirm(text)) return;
    this.detail.closeEditor();
    this.drafts.set(this.row, null);
    this.record(text === this.row.text ? { decision: "accept" } : { decision: "fix", fixed: text }, 1);
  }

  record(decision, step) {
    const { row } = this;
    if (!this.isShown()) return;
    const next = this.list.rows[this.list.chosen + step];
    const before = this.decisions.of(row);
    if (decision && before?.comment) decision = { ...decision, comment: before.comment };
    this.history.push([[row, this.decisions.set(row, decision)]]);
    this.undone = [];
    if (step && next) this.choose(next);
    this.changed([row]);
    this.focus();
    if (!this.team.served && this.decisions.unstored.has(row.id))
      say("The browser's storage is full: this decision is not stored. Export all decisions before you close the page.");
    else if (step && !next && decision && this.row === row) say("That was the last utterance of the list.");
  }

  // A comment belongs to a decision; without one, the utterance is skipped.
  saveComment(comment) {
    const { row } = this;
    const made = this.decisions.of(row);
    if ((made?.comment ?? "") === comment || !this.isShown()) return;
    const { decision, fixed, reason } = made ?? { decision: "skip" };
    this.recordAll([[row, { decision, fixed, reason, comment }]], made ? "Comment stored." : "Skipped, with a comment.");
  }

  changed(rows) {
    const rules = rows.some((row) => row.rule);
    if (rules) this.takeRules();
    if (rules || byName("decision").value !== "all" || this.filters.byDecision) this.refilter(rules);
    else rows.forEach((row) => this.list.refresh(row));
    if (rows.includes(this.row)) this.detail.showDecision();
    if (rules) this.detail.findingsChanged();
    this.showProgress();
  }

  // Take decisions from one pile of changes, and put what they replace on the other.
  restore(from, to, nothing) {
    const last = from.pop();
    if (!last) return say(nothing);
    to.push(last.map(([row, decision]) => [row, this.decisions.set(row, decision)]));
    this.changed(last.map(([row]) => row));
    if (!last[0][0].rule) this.choose(last[0][0]);
    this.whenShown(() => this.row && this.detail.showDecision());
    if (last.length > 1) say(`${plural(last.length, "decision")} changed back.`);
    else if (last[0][0].rule) say(`${patternText(last[0][0].rule)}: the rule was changed back.`);
  }

  undo() {
    this.restore(this.history, this.undone, "Nothing to undo.");
  }

  redo() {
    this.restore(this.undone, this.history, "Nothing to do again.");
  }

  // Another window has changed decisions. What is shown here stays.
  changedElsewhere(ids) {
    if (ids.some(isRuleId)) {
      this.takeRules();
      this.detail.findingsChanged();
    }
    this.refilter(true);
    if (!this.row || !ids.includes(this.row.id)) return;
    this.whenShown(() => this.detail.showDecision());
    const newest = [this.decisions.of(this.row), ...this.decisions.othersOf(this.row)].filter(Boolean);
    const made = newest.sort((a, b) => (a.at < b.at ? 1 : -1))[0];
    const who = made?.reviewer && made.reviewer !== this.team.name ? made.reviewer : "Another window";
    say(`${who} has ${made ? DECISIONS[made.decision] : "undone the decision on"} this utterance.`);
  }

  async export() {
    try {
      await this.decisions.download();
    } catch (error) {
      return say(error.message);
    }
    const command = `wildctc apply-fixes MANIFEST ${report.info.name}-decisions.jsonl -o OUT`;
    say(`${plural(this.decisions.made.size, "decision")} exported; apply them with: ${command}`);
  }

  async load(input) {
    const [file] = input.files;
    if (!file) return;
    const [message, before] = await loadDecisions(this.decisions, await file.text());
    say(`${shorten(file.name, 60)}: ${message}`);
    input.value = ""; // so that the same file can be loaded again
    if (before.length) this.history.push(before);
    this.takeRules();
    this.refilter();
    if (this.row) this.whenShown(() => this.detail.findingsChanged());
  }
}

byName("count").textContent = "Loading…";
loadReport()
  .then(async () => {
    const team = new Team();
    if (team.served && !team.name) await team.ask();
    const store = team.served ? new ServerStore(report.info.key, team) : new BrowserStore(report.info.key);
    window.app = new App(await new Decisions(store, team).open(), team);
  })
  .catch((error) => {
    byName("count").textContent = error.message;
    console.error(error);
  });
