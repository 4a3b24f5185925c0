// The application: connects the parts of the page, keeps the chosen utterance, and handles keys.
"use strict";

const LISTED = 500; // at most so many utterances that could not be probed are listed
const SPEEDS = [1, 1.25, 1.5, 2, 0.5, 0.75];
const ALWAYS = ["u", "U", "/", "?"]; // keys that need no utterance
const CONTEXT = 0.3; // seconds that are also played before and after missing speech or extra text

class App {
  constructor(decisions, team) {
    this.row = null;
    this.decisions = decisions;
    this.team = team;
    decisions.onchange = (id) => this.changedElsewhere(id);
    this.drafts = new Drafts(report.info.key);
    this.shortcuts = new Shortcuts();
    this.history = []; // for undo: lists of [row, its decision before]
    this.undone = []; // for redo
    this.filters = new Filters(this.decisions, () => this.refilter());
    this.player = new Player((row, time) => row === this.row && this.detail.tick(time), say);
    this.detail = new Detail(byName("detail"), this);
    this.list = new VirtualList(
      byName("list"),
      (element, row) => showRow(element, row, this.decisions.shown(row), this.drafts.of(row) !== null, team.name),
      (row, event) => this.clicked(row, event),
    );
    byName("name").textContent = report.info.name;
    document.title = `${report.info.name} – audit`;
    byName("export").onclick = () => this.export();
    byName("load").onclick = () => byName("file").click();
    byName("file").onchange = (event) => this.load(event.target);
    byName("help").onclick = () => byName("about").showModal();
    byName("recurring").onclick = () => showRecurring(this);
    byName("unstored").onclick = () => this.export();
    byName("show-all").onclick = () => {
      this.filters.clear();
      this.focus();
    };
    this.fillHelp();
    if (team.served) this.showServer();
    document.addEventListener("keydown", (event) => this.key(event));
    this.refilter();
    this.choose(this.list.rows.find((row) => this.decisions.isOpen(row)) ?? this.list.rows[0]);
    this.focus();
    if (!this.decisions.store.kept) say("This browser cannot store decisions: export them before you close the page.");
    else if (this.decisions.store.unreadable)
      say(`The browser's store is damaged: ${plural(this.decisions.store.unreadable, "decision")} cannot be read.`);
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
    const total = plural(report.rows.length, "utterance");
    byName("count").textContent = this.filters.narrowed
      ? `${rows.length.toLocaleString("en")} of ${total}`
      : `${total}, most suspicious first`;
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
    byName("export").disabled = done === 0;
    const lost = this.team.served ? 0 : this.decisions.unstored.size;
    byName("unstored").hidden = lost === 0;
    byName("unstored").textContent = `${lost.toLocaleString("en")} not stored: export`;
  }

  clicked(row, event) {
    this.choose(row);
    const word = event.target.closest("[data-word]")?.dataset.word;
    if (word !== undefined) this.playWord(Number(word));
  }

  choose(row) {
    if (!row || row === this.row) return;
    this.player.stop();
    this.row = row;
    this.finding = -1;
    this.list.choose(row);
    const rank = [this.list.rows.indexOf(row) + 1, this.list.rows.length]
      .map((n) => n.toLocaleString("en"))
      .join(" of ");
    this.detail.show(row, rank).catch((error) => say(error.message));
    this.player.open(row);
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

  play(start, end, word) {
    this.detail.setWord(word);
    this.player.play(this.row, start, Math.max(end, start + 0.05));
  }

  playAll() {
    if (this.player.playing) this.player.stop();
    else this.player.play(this.row);
  }

  playWord(number) {
    const word = this.row.words[number];
    if (word) this.play(word.start, word.end, number);
  }

  playFinding(number) {
    const issue = this.row.issues[number];
    if (!issue) return;
    this.finding = number;
    const around = issue.kind === "changed" ? 0 : CONTEXT;
    const word = issue.kind === "missing" ? null : issue.word;
    this.play(Math.max(0, issue.start - around), Math.min(this.row.duration, issue.end + around), word);
  }

  changeSpeed(step = 1) {
    const { audio } = this.player;
    const number = SPEEDS.indexOf(audio.playbackRate) + step;
    audio.defaultPlaybackRate = audio.playbackRate = SPEEDS.at(number % SPEEDS.length);
    this.detail.speed.textContent = `${audio.playbackRate}×`;
  }

  changeLoop() {
    this.player.loop = !this.player.loop;
    this.detail.loop.setAttribute("aria-pressed", String(this.player.loop));
  }

  // Make a decision and show the next utterance. The same decision once more only goes on.
  decide(name) {
    if (name === "fix") return this.detail.openEditor();
    if (this.decisions.of(this.row)?.decision !== name) return this.record({ decision: name }, 1);
    if (this.list.chosen + 1 < this.list.rows.length) this.move(1);
    else say(`This utterance is ${DECISIONS[name]} already, and it is the last of the list. u undoes a decision.`);
  }

  // Fix a recurring finding in all these utterances; one undo takes all of it back.
  fixAll(issue, rows) {
    const fixes = rows.map((row) => [row, fixOneMore(row, this.decisions.of(row), issue)]);
    this.history.push(fixes.map(([row, decision]) => [row, this.decisions.set(row, decision)]));
    this.undone = [];
    this.changed(rows);
    say(`${plural(rows.length, "utterance")} fixed: ${patternText(issue)}. u undoes it.`);
  }

  // Take over what another reviewer decided.
  adopt(made) {
    this.detail.closeEditor();
    this.record({ decision: made.decision, fixed: made.fixed }, 0);
  }

  // A click on the button of the decision that was made takes it back.
  toggle(name) {
    if (name === "fix" || this.decisions.of(this.row)?.decision !== name) return this.decide(name);
    this.record(null, 0);
    say(`No longer ${DECISIONS[name]}. u brings it back.`);
  }

  save(text) {
    if (!text) return say("A fix needs at least one word. If nothing is said in the utterance, skip it.");
    if (this.detail.mustConfirm(text)) return;
    this.detail.closeEditor();
    this.drafts.set(this.row, null);
    this.record(text === this.row.text ? { decision: "accept" } : { decision: "fix", fixed: text }, 1);
  }

  record(decision, step) {
    const { row } = this;
    const next = this.list.rows[this.list.chosen + step];
    this.history.push([[row, this.decisions.set(row, decision)]]);
    this.undone = [];
    if (step && next) this.choose(next);
    this.changed([row]);
    this.focus();
    if (!this.team.served && this.decisions.unstored.has(row.id))
      say("The browser's storage is full: this decision is not stored. Export all decisions before you close the page.");
    else if (step && !next && decision && this.row === row) say("That was the last utterance of the list.");
  }

  changed(rows) {
    if (byName("decision").value === "all") rows.forEach((row) => this.list.refresh(row));
    else this.refilter();
    if (rows.includes(this.row)) this.detail.showDecision();
    this.showProgress();
  }

  // Take decisions from one pile of changes, and put what they replace on the other.
  restore(from, to, nothing) {
    const last = from.pop();
    if (!last) return say(nothing);
    to.push(last.map(([row, decision]) => [row, this.decisions.set(row, decision)]));
    this.changed(last.map(([row]) => row));
    this.choose(last[0][0]);
    this.detail.showDecision();
    if (last.length > 1) say(`${plural(last.length, "decision")} changed back.`);
  }

  // Another window has changed a decision. What is shown here stays.
  changedElsewhere(id) {
    this.refilter(true);
    if (this.row?.id !== id) return;
    this.detail.showDecision();
    const newest = [this.decisions.of(this.row), ...this.decisions.othersOf(this.row)].filter(Boolean);
    const made = newest.sort((a, b) => (a.at < b.at ? 1 : -1))[0];
    const who = made?.reviewer && made.reviewer !== this.team.name ? made.reviewer : "Another window";
    say(`${who} has ${made ? DECISIONS[made.decision] : "undone the decision on"} this utterance.`);
  }

  export() {
    this.decisions.download();
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
    this.refilter();
    if (this.row) this.detail.showDecision();
  }

  fillHelp() {
    const { settings, leftOut, linked } = report.info;
    byName("linked").hidden = !linked;
    const known = Object.entries(settings).map(([name, value]) => `${name} ${JSON.stringify(value)}`);
    byName("settings").textContent = known.join(", ");
    byName("left-out").hidden = leftOut.length === 0;
    byName("left-out").firstChild.textContent = `${plural(leftOut.length, "utterance")} could not be probed`;
    const reasons = leftOut.slice(0, LISTED).map(([id, reason]) => make("li", {}, make("bdi", {}, id), `: ${reason}`));
    byName("left-out").lastChild.append(...reasons);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open]"))
      return;
    const field = event.target.closest("input[type=search], select, textarea");
    if (field) return this.keyInField(event, field);
    // buttons and sliders use some keys themselves
    if ([" ", "Enter"].includes(event.key) && event.target.closest("button, summary, input")) return;
    if (/^(Arrow|Page|Home|End)/.test(event.key) && event.target.closest("input")) return;
    // a letter belongs to the fix that is being typed, wherever the focus is
    if (this.detail.editing && isCharacter(event)) return this.detail.editor.text.focus();
    if (isCharacter(event) && !this.shortcuts.on) return;
    const name = keyName(event);
    const action = this.actions()[name] ?? (/^[1-9]$/.test(name) && (() => this.detail.takeByDigit(Number(name) - 1)));
    if (!action) return;
    event.preventDefault();
    if (this.row || ALWAYS.includes(name)) action();
    else say("No utterance is chosen: the list is empty.");
  }

  keyInField(event, field) {
    const searching = field.type === "search";
    if (event.key === "Escape" && searching && field.value) {
      field.value = "";
      this.refilter();
      event.preventDefault();
    } else if (event.key === "Escape" || (event.key === "Enter" && searching)) this.focus();
  }

  actions() {
    const page = Math.max(1, Math.floor(byName("list").clientHeight / ROW_HEIGHT) - 1);
    const forward = getComputedStyle(this.detail.transcript).direction === "rtl" ? -1 : 1;
    const word = (step) => () => {
      const { length } = this.row.words;
      const from = this.detail.word ?? (step > 0 ? -1 : length);
      if (length) this.playWord(Math.min(length - 1, Math.max(0, from + step)));
    };
    return {
      j: () => this.move(1),
      ArrowDown: () => this.move(1),
      k: () => this.move(-1),
      ArrowUp: () => this.move(-1),
      PageDown: () => this.move(page),
      PageUp: () => this.move(-page),
      Home: () => this.move(-Infinity),
      End: () => this.move(Infinity),
      " ": () => this.playAll(),
      ArrowRight: word(forward),
      ArrowLeft: word(-forward),
      Enter: () => this.playWord(this.detail.word ?? 0),
      n: () => this.playFinding((this.finding + 1) % Math.max(1, this.row.issues.length)),
      a: () => this.decide("accept"),
      f: () => this.decide("fix"),
      s: () => this.decide("skip"),
      u: () => this.restore(this.history, this.undone, "Nothing to undo."),
      U: () => this.restore(this.undone, this.history, "Nothing to do again."),
      r: () => this.changeSpeed(),
      R: () => this.changeSpeed(-1),
      l: () => this.changeLoop(),
      "/": () => {
        byName("search").focus();
        byName("search").select();
      },
      "?": () => byName("about").showModal(),
    };
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
