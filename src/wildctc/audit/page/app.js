// The application: connects the parts of the page, keeps the chosen utterance, and handles keys.
"use strict";

const LISTED = 500; // at most so many utterances that could not be probed are listed
const SPEEDS = [1, 0.75, 0.5];
const CONTEXT = 0.3; // seconds that are also played before and after missing speech or extra text

class App {
  constructor() {
    this.decisions = new Decisions(report.info.key, () => {
      this.refilter();
      this.detail.showDecision();
    });
    this.history = []; // for undo: [row, its decision before]
    this.filters = new Filters(this.decisions, () => this.refilter());
    this.player = new Player((row, time) => row === this.row && this.detail.tick(time), say);
    this.detail = new Detail(byName("detail"), this.decisions, this);
    this.list = new VirtualList(
      byName("list"),
      (element, row) => showRow(element, row, this.decisions.of(row)?.decision),
      (row, event) => this.clicked(row, event),
    );
    byName("name").textContent = report.info.name;
    document.title = `${report.info.name} – audit`;
    byName("export").onclick = () => this.export();
    byName("load").onclick = () => byName("file").click();
    byName("file").onchange = (event) => this.load(event.target);
    byName("help").onclick = () => byName("about").showModal();
    this.fillHelp();
    document.addEventListener("keydown", (event) => this.key(event));
    this.refilter();
    this.choose(this.list.rows.find((row) => !this.decisions.of(row)) ?? this.list.rows[0]);
    byName("list").focus();
    if (!this.decisions.kept)
      say("This browser cannot store decisions: export them before you close the page.");
  }

  refilter() {
    const rows = this.filters.apply();
    this.list.setRows(rows, this.row);
    const total = plural(report.rows.length, "utterance");
    byName("count").textContent = this.filters.narrowed
      ? `${rows.length.toLocaleString("en")} of ${total}`
      : `${total}, most suspicious first`;
    if (!rows.includes(this.row) && rows.length) this.choose(rows[0]);
    this.showProgress();
  }

  showProgress() {
    const { accept, fix, skip } = this.decisions.counts();
    const done = accept + fix + skip;
    byName("progress").textContent =
      `${done.toLocaleString("en")} of ${report.rows.length.toLocaleString("en")} decided`;
    byName("progress").title = `${accept} accepted, ${fix} fixed, ${skip} skipped`;
    byName("export").disabled = done === 0;
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

  changeSpeed() {
    const { audio } = this.player;
    audio.defaultPlaybackRate = audio.playbackRate = SPEEDS[(SPEEDS.indexOf(audio.playbackRate) + 1) % SPEEDS.length];
    this.detail.speed.textContent = `${audio.playbackRate}×`;
  }

  // Make a decision and show the next utterance. A second time, the same decision is taken back.
  decide(name) {
    if (name === "fix") return this.detail.openEditor();
    if (this.decisions.of(this.row)?.decision === name) this.record(null, 0);
    else this.record({ decision: name }, 1);
  }

  save(text) {
    if (!text) return say("A fix needs at least one word. If nothing is said in the utterance, skip it.");
    this.detail.closeEditor();
    this.record(text === this.row.text ? { decision: "accept" } : { decision: "fix", fixed: text }, 1);
  }

  record(decision, step) {
    const { row } = this;
    const next = this.list.rows[this.list.chosen + step];
    this.history.push([row, this.decisions.set(row, decision)]);
    if (step && next) this.choose(next);
    this.changed(row);
    byName("list").focus();
    if (!this.decisions.kept)
      say("The browser cannot store decisions any more: export them before you close the page.");
  }

  changed(row) {
    if (byName("decision").value === "all") this.list.refresh(row);
    else this.refilter();
    if (row === this.row) this.detail.showDecision();
    this.showProgress();
  }

  undo() {
    const last = this.history.pop();
    if (!last) return say("Nothing to undo.");
    this.decisions.set(...last);
    this.changed(last[0]);
    this.choose(last[0]);
    this.detail.showDecision();
  }

  export() {
    this.decisions.download();
    const command = `wildctc apply-fixes MANIFEST ${report.info.name}-decisions.jsonl -o OUT`;
    say(`${plural(this.decisions.made.size, "decision")} exported; apply them with: ${command}`);
  }

  async load(input) {
    const [file] = input.files;
    if (!file) return;
    say(`${file.name}: ${this.decisions.load(await file.text())}`);
    input.value = ""; // so that the same file can be loaded again
    this.history = [];
    this.refilter();
    this.detail.showDecision();
  }

  fillHelp() {
    const { settings, leftOut } = report.info;
    const known = Object.entries(settings).map(([name, value]) => `${name} ${JSON.stringify(value)}`);
    byName("settings").textContent = known.join(", ");
    byName("left-out").hidden = leftOut.length === 0;
    byName("left-out").firstChild.textContent = `${plural(leftOut.length, "utterance")} could not be probed`;
    const reasons = leftOut.slice(0, LISTED).map(([id, reason]) => make("li", {}, make("bdi", {}, id), `: ${reason}`));
    byName("left-out").lastChild.append(...reasons);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byName("about").open) return;
    const field = event.target.closest("input[type=search], select, textarea");
    if (field) {
      if (event.key === "Escape") {
        if (field.type === "search" && field.value) {
          field.value = "";
          this.refilter();
          event.preventDefault();
        } else byName("list").focus();
      } else if (event.key === "Enter" && field.type === "search") byName("list").focus();
      return;
    }
    // buttons and sliders use some keys themselves
    if ([" ", "Enter"].includes(event.key) && event.target.closest("button, summary, input")) return;
    if (/^(Arrow|Page|Home|End)/.test(event.key) && event.target.closest("input")) return;
    const action =
      this.actions()[event.key] ?? (/^[1-9]$/.test(event.key) && (() => this.detail.take(Number(event.key) - 1)));
    if (!action || !this.row) return;
    event.preventDefault();
    action();
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
      u: () => this.undo(),
      r: () => this.changeSpeed(),
      "/": () => {
        byName("search").focus();
        byName("search").select();
      },
      "?": () => byName("about").showModal(),
    };
  }
}

function say(message) {
  const toast = byName("toast");
  toast.textContent = message;
  toast.hidden = false;
  clearTimeout(say.timer);
  say.timer = setTimeout(
    () => {
      toast.hidden = true;
    },
    3000 + 60 * message.length,
  );
}

byName("count").textContent = "Loading…";
loadReport()
  .then(() => {
    window.app = new App();
  })
  .catch((error) => {
    byName("count").textContent = error.message;
    console.error(error);
  });
