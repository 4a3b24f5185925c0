// The chosen utterance: transcript, sound, findings, decision.
"use strict";

class Detail {
  // act: the application (app.js), with its actions, decisions and drafts.
  constructor(element, act) {
    this.element = element;
    this.decisions = act.decisions;
    this.drafts = act.drafts;
    this.act = act;
    this.title = make("h2");
    this.about = make("p", { class: "about" });
    this.transcript = make("p", { class: "transcript", dir: "auto" });
    this.note = make("p", { class: "note", role: "status" });
    this.heard = make("p", { class: "heard", dir: "auto" });
    const { listening } = act;
    this.wave = new Wave((start, end, word) => listening.play(start, end, word));
    this.play = make("button", { class: "play", onclick: () => listening.playAll() });
    this.controls = new Controls(this, listening);
    this.findings = make("ol", { class: "findings" });
    this.fixed = make("p", { class: "fixed", hidden: true });
    this.others = make("ul", { class: "others", "aria-label": "Decisions of other reviewers", hidden: true });
    this.comment = new Comment((text) => act.saveComment(text), () => act.focus());
    this.editor = new Editor({
      save: (text) => act.save(text),
      close: () => this.closeEditor(),
      changed: () => this.edited(),
      take: (number) => this.takeByDigit(number),
      takeAll: () => this.takeAll(),
      playAll: () => listening.playAll(),
      playWord: (number) => listening.playWord(number),
      playFinding: (number) => listening.playFinding(number),
      changeSpeed: (step) => listening.changeSpeed(step),
      changeLoop: () => listening.changeLoop(),
    });
    this.buttons = this.makeButtons();
    this.transcript.addEventListener("click", (event) => {
      const number = event.target.closest("[data-word]")?.dataset.word;
      if (number !== undefined) listening.playWord(Number(number));
    });
    this.transcript.addEventListener("mouseover", (event) => {
      const number = event.target.closest("[data-word]")?.dataset.word;
      if (number !== undefined && this.detail) this.describe(Number(number));
    });
    this.build();
    // while a fix is typed, no click takes the focus from it, except into another field or a dialog
    const own = ({ target }) => !target.closest("input, select, textarea, dialog");
    document.addEventListener("mousedown", (event) => this.editing && own(event) && event.preventDefault());
    document.addEventListener("click", (event) => this.editing && own(event) && this.editor.text.focus());
  }

  makeButtons() {
    const labels = {
      accept: ["Accept", "a", "The transcript is right"],
      fix: ["Fix…", "f", "Correct the transcript"],
      skip: ["Skip", "s", "Leave it as it is, without judging it"],
    };
    const reasons = Object.entries(REASONS).map(([key, reason]) =>
      make(
        "button",
        { class: "reason", title: `Skip it: ${reason}`, "aria-pressed": "false", onclick: () => this.act.decide("skip", reason) },
        `${reason} `,
        make("kbd", {}, key),
      ),
    );
    this.reasons = make("span", { class: "reasons", role: "group", "aria-label": "Skip it because of" }, ...reasons);
    return Object.entries(labels).map(([name, [text, key, title]]) =>
      make(
        "button",
        { class: `decide ${name}`, title, "aria-pressed": "false", onclick: () => this.act.toggle(name) },
        `${text} `,
        make("kbd", {}, key),
      ),
    );
  }

  build() {
    this.bar = make("div", { class: "buttons" }, ...this.buttons, this.reasons, this.comment.element);
    this.foot = make("div", { class: "foot" }, this.others, this.fixed, this.bar);
    this.element.append(
      (this.scroll = make(
        "div",
        { class: "scroll" },
        this.title,
        this.about,
        this.transcript,
        this.note,
        make("div", { class: "controls" }, this.play, ...this.controls.buttons, legend()),
        this.wave.element,
        make("h3", {}, "Findings"),
        this.findings,
        make("h3", {}, "Heard"),
        this.heard,
      )),
      this.foot,
    );
  }

  // Show an utterance. Resolves when all of it is shown: to false if another one was chosen in the meantime.
  async show(row, rank) {
    this.closeEditor();
    this.row = row;
    this.scroll.hidden = this.foot.hidden = false;
    this.detail = null;
    this.word = null;
    this.title.replaceChildren(make("bdi", {}, row.id));
    this.note.textContent = "Click a word to hear it; ← and → move from word to word.";
    if (!row.words) {
      for (const part of [this.transcript, this.heard, this.findings, this.about]) part.replaceChildren();
      await loadDetail(row);
      if (this.row !== row) return false;
    }
    showTranscript(this.transcript, row, 0, (word) => this.missing(word));
    this.spans = [...this.transcript.querySelectorAll(".word")];
    if (!row.text) this.transcript.append(make("em", {}, "(empty)"));
    this.showHeard();
    this.showFindings();
    this.showDecision();
    this.setPlaying((this.playing = false));
    this.play.disabled = !row.audio;
    const detail = await loadDetail(row);
    if (this.row !== row) return false;
    this.detail = detail;
    this.showAbout(rank);
    this.wave.element.hidden = !row.audio;
    this.wave.show(row, detail);
    return true;
  }

  // A rule has changed which findings are shown.
  findingsChanged() {
    if (!this.row?.words || this.editing) return;
    showTranscript(this.transcript, this.row, 0, (word) => this.missing(word));
    this.spans = [...this.transcript.querySelectorAll(".word")];
    this.showFindings();
    this.showDecision();
    this.wave.draw();
  }

  showControls() {
    this.controls.show();
  }

  changeView(name) {
    this.wave.view[name] = !this.wave.view[name];
    this.wave.draw();
    this.showControls();
  }

  // Nothing is chosen.
  hide() {
    this.closeEditor();
    this.scroll.hidden = this.foot.hidden = true;
  }

  showAbout(rank) {
    const { row, detail } = this;
    const speaker = speakerName(row);
    const parts = [
      speaker && make("bdi", {}, speaker),
      seconds(row.duration),
      make("bdi", {}, detail.file),
      rank,
      `suspicion ${row.suspicion.toFixed(2)}`,
      !row.audio && "its audio could not be used",
    ];
    this.about.replaceChildren(...parts.filter(Boolean).flatMap((part, i) => (i ? [" · ", part] : [part])));
    this.scroll.scrollTop = 0;
  }

  // The findings of speech that is not written, by the word before which it belongs.
  findGaps() {
    this.gapsOf = this.row.issues;
    this.gaps = new Map();
    this.row.issues.forEach(({ kind, word, score }, number) => {
      if (kind === "missing" && score >= 0.5 && !this.gaps.has(word)) this.gaps.set(word, number);
    });
  }

  // A mark before a word (or at the end) where speech is not written.
  missing(word) {
    if (this.gapsOf !== this.row.issues) this.findGaps();
    const number = this.gaps.get(word);
    if (number === undefined) return null;
    const { heard, score } = this.row.issues[number];
    const title = `Speech that is not written here${heard ? `: ${heard}` : ""} (${score.toFixed(2)})`;
    const mark = make(
      "button",
      { class: "gap", title, onclick: () => this.act.listening.playFinding(number) },
      `+${heard ? ` ${heard}` : ""}`,
    );
    return make("bdi", {}, mark, " ");
  }

  // The model's own transcript.
  showHeard() {
    this.heard.replaceChildren(...heardParts(this.row));
    if (!this.row.heard) this.heard.replaceChildren(make("em", {}, "nothing"));
  }

  showFindings() {
    const play = (number) => this.act.listening.playFinding(number);
    const items = this.row.issues.map((issue, number) => findingLine(issue, number, play, () => this.take(number)));
    this.findings.replaceChildren(...items);
    if (!items.length) this.findings.append(make("li", { class: "none" }, "Nothing doubtful."));
  }

  showDecision() {
    if (!this.row) return;
    const made = this.decisions.of(this.row);
    this.comment.show(made);
    for (const button of this.reasons.children)
      button.setAttribute("aria-pressed", String(made?.decision === "skip" && button.textContent.startsWith(made.reason || "?")));
    for (const button of this.buttons)
      button.setAttribute("aria-pressed", String(button.classList.contains(made?.decision)));
    this.fixed.hidden = made?.decision !== "fix";
    if (!this.fixed.hidden) this.fixed.replaceChildren("Fixed: ", make("bdi", {}, made.fixed));
    showOthers(this.others, made, this.decisions.othersOf(this.row), (other) => this.act.adopt(other));
    const draft = this.editing ? null : this.drafts.of(this.row);
    if (draft === null) return;
    this.fixed.hidden = false;
    this.fixed.replaceChildren("Begun, not saved (f goes on): ", make("bdi", {}, draft));
  }

  get editing() {
    return this.editor.element.isConnected;
  }

  openEditor() {
    if (this.editing) return;
    this.bar.before(this.editor.element);
    this.bar.hidden = this.fixed.hidden = true;
    this.confirmed = null;
    this.editor.open(this.row, this.drafts.of(this.row) ?? this.startText());
  }

  startText() {
    return this.decisions.of(this.row)?.fixed ?? this.row.text;
  }

  // The text of the fix has changed.
  edited() {
    const { value } = this.editor.text;
    this.drafts.set(this.row, value === this.startText() ? null : value);
    const unknown = unknownCharacters(value);
    this.editor.warn(unknown.length ? `The model cannot write ${nameCharacters(unknown)}.` : "");
    this.showTaken();
  }

  // Whether a fix with characters that the model cannot write must be saved a second time.
  mustConfirm(text) {
    const unknown = unknownCharacters(text);
    if (!unknown.length || this.confirmed === text) return false;
    this.confirmed = text;
    this.editor.warn(`The model cannot write ${nameCharacters(unknown)}. Save once more to keep the fix as it is.`);
    return true;
  }

  closeEditor() {
    if (!this.editing) return;
    this.editor.element.remove();
    this.bar.hidden = false;
    this.showFindings();
    this.showDecision();
    this.act.list.refresh(this.row);
    byName("list").focus();
  }

  take(number) {
    const issue = this.row.issues[number];
    if (!issue || this.findings.children[number].querySelector(".take").hidden) return;
    this.openEditor();
    this.editor.take(issue, number);
  }

  // Copy all findings with a score of at least 0.5 into the fix: the text is then as it was heard.
  takeAll() {
    const numbers = this.row.issues.flatMap(({ score }, number) => (score >= 0.5 ? [number] : []));
    if (!numbers.length) return say("Nothing was heard differently with a score of at least 0.5.");
    numbers.forEach((number) => this.take(number));
  }

  // Until something else is typed, further digits copy further findings.
  takeByDigit(number) {
    if (!this.row.issues[number]) return say(`There is no finding ${number + 1}.`);
    this.take(number);
    this.editor.taking = this.editing;
  }

  // A finding that is already in the fix, or whose text was edited, cannot be copied into the fix.
  showTaken() {
    this.findings.querySelectorAll(".take").forEach((button, number) => {
      button.disabled = this.editing && this.editor.places.findings[number].used;
    });
  }

  // Choose a word. The arrow keys move from this word.
  setWord(number) {
    this.spans[this.word]?.classList.remove("chosen");
    this.word = number;
    if (number === null) return;
    this.spans[number]?.classList.add("chosen");
    this.describe(number);
    this.spans[number]?.scrollIntoView({ block: "nearest" });
    this.wave.reveal(this.row.words[number].start, this.row.words[number].end);
  }

  describe(number) {
    const word = this.row.words[number];
    const { heard } = word;
    const written = this.row.text.slice(word.begin, word.stop);
    const what =
      heard === written
        ? ["heard as it is written"]
        : heard
          ? ["heard ", make("bdi", { class: "said" }, heard)]
          : ["nothing heard in its place"];
    this.note.replaceChildren(
      make("bdi", { class: "said" }, written),
      ": ",
      ...what,
      ` · not said with probability ${word.bypass.toFixed(2)} · ${word.start.toFixed(2)}–${seconds(word.end)}`,
    );
  }

  setPlaying(playing) {
    this.play.replaceChildren(playing ? "❚❚ Pause " : "▶ Play ", make("kbd", {}, "space"));
  }

  // time: what is being played, in seconds; null at the end. playing: false for a pause.
  tick(time, playing = time !== null) {
    if (playing !== this.playing) this.setPlaying((this.playing = playing));
    this.wave.tick(time);
    const now = time === null ? -1 : this.row.words.findIndex((word) => word.start <= time && time < word.end);
    if (now === this.now) return;
    this.spans?.[this.now]?.classList.remove("now");
    this.now = now;
    this.spans?.[now]?.classList.add("now");
  }
}
