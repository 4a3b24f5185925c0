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
    this.wave = new Wave((start, end, word) => act.play(start, end, word));
    this.play = make("button", { class: "play", onclick: () => act.playAll() });
    this.speed = make("button", { title: "Playing speed (r)", onclick: () => act.changeSpeed() }, "1×");
    this.loop = make(
      "button",
      { title: "Play again and again (l)", "aria-pressed": "false", onclick: () => act.changeLoop() },
      "Loop",
    );
    this.findings = make("ol", { class: "findings" });
    this.fixed = make("p", { class: "fixed", hidden: true });
    this.others = make("ul", { class: "others", "aria-label": "Decisions of other reviewers", hidden: true });
    this.editor = new Editor({
      save: (text) => act.save(text),
      close: () => this.closeEditor(),
      changed: () => this.edited(),
      take: (number) => this.takeByDigit(number),
      playAll: () => act.playAll(),
      playWord: (number) => act.playWord(number),
      playFinding: (number) => act.playFinding(number),
      changeSpeed: (step) => act.changeSpeed(step),
      changeLoop: () => act.changeLoop(),
    });
    this.buttons = this.makeButtons();
    this.transcript.addEventListener("click", (event) => {
      const number = event.target.closest("[data-word]")?.dataset.word;
      if (number !== undefined) act.playWord(Number(number));
    });
    this.transcript.addEventListener("mouseover", (event) => {
      const number = event.target.closest("[data-word]")?.dataset.word;
      if (number !== undefined && this.detail) this.describe(Number(number));
    });
    this.build();
    // while a fix is typed, a click elsewhere does not take the focus from it
    element.addEventListener("mousedown", (event) => {
      if (this.editing && event.target !== this.editor.text) event.preventDefault();
    });
    element.addEventListener("click", () => this.editing && this.editor.text.focus());
  }

  makeButtons() {
    const labels = {
      accept: ["Accept", "a", "The transcript is right"],
      fix: ["Fix…", "f", "Correct the transcript"],
      skip: ["Skip", "s", "Leave it as it is, without judging it"],
    };
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
    this.bar = make("div", { class: "buttons" }, ...this.buttons);
    this.foot = make("div", { class: "foot" }, this.others, this.fixed, this.bar);
    this.element.append(
      (this.scroll = make(
        "div",
        { class: "scroll" },
        this.title,
        this.about,
        this.transcript,
        this.note,
        make("div", { class: "controls" }, this.play, this.speed, this.loop, legend()),
        this.wave.element,
        make("h3", {}, "Findings"),
        this.findings,
        make("h3", {}, "Heard"),
        this.heard,
      )),
      this.foot,
    );
  }

  async show(row, rank) {
    this.closeEditor();
    this.row = row;
    this.scroll.hidden = this.foot.hidden = false;
    this.detail = null;
    this.word = null;
    this.title.replaceChildren(make("bdi", {}, row.id));
    this.note.textContent = "Click a word to hear it; ← and → move from word to word.";
    showTranscript(this.transcript, row, 0, (word) => this.missing(word));
    if (!row.text) this.transcript.append(make("em", {}, "(empty)"));
    this.showHeard();
    this.showFindings();
    this.showDecision();
    this.setPlaying(false);
    this.play.disabled = !row.audio;
    const detail = await loadDetail(row);
    if (this.row !== row) return; // another utterance was chosen in the meantime
    this.detail = detail;
    this.showAbout(rank);
    this.wave.element.hidden = !row.audio;
    this.wave.show(row, detail);
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

  // A mark before a word (or at the end) where speech is not written.
  missing(word) {
    const number = this.row.issues.findIndex(
      (issue) => issue.kind === "missing" && issue.word === word && issue.score >= 0.5,
    );
    if (number < 0) return null;
    const { heard, score } = this.row.issues[number];
    const title = `Speech that is not written here${heard ? `: ${heard}` : ""} (${score.toFixed(2)})`;
    const mark = make(
      "button",
      { class: "gap", title, onclick: () => this.act.playFinding(number) },
      `+${heard ? ` ${heard}` : ""}`,
    );
    return make("bdi", {}, mark, " ");
  }

  // The model's own transcript. Words that are not in the written transcript are marked.
  showHeard() {
    const written = this.row.text.split(" "),
      heard = this.row.heard.split(" ");
    const same = commonWords(written, heard);
    this.heard.replaceChildren(
      ...heard.flatMap((word, i) => [i ? " " : "", same.has(i) ? word : make("mark", {}, word)]),
    );
    if (!this.row.heard) this.heard.replaceChildren(make("em", {}, "nothing"));
  }

  showFindings() {
    const items = this.row.issues.map((issue, number) => {
      const text = make(
        "span",
        { class: "what" },
        make("span", { class: `sign ${issue.kind}`, title: KIND_NAMES[issue.kind] }, KIND_SIGNS[issue.kind]),
        " ",
        ...differenceOf(issue),
      );
      const listen = make(
        "button",
        {
          class: "listen",
          title: "Play",
          "aria-label": `▶ ${seconds(issue.start)}: play ${describeIssue(issue)}`,
          onclick: () => this.act.playFinding(number),
        },
        "▶ ",
        make("span", { class: "time" }, seconds(issue.start)),
      );
      const take = make(
        "button",
        {
          class: "take",
          title: `Copy it into the fix (${number + 1})`,
          "aria-label": `${takeText(issue)} ${number + 1}: ${describeIssue(issue)}`,
          onclick: () => this.take(number),
        },
        takeText(issue),
        " ",
        number < 9 && make("kbd", {}, String(number + 1)),
      );
      take.hidden = issue.kind === "missing" ? !issue.heard : issue.heard === issue.written;
      return make(
        "li",
        {},
        text,
        make("span", { class: "score", title: "0 to 1" }, issue.score.toFixed(2)),
        listen,
        take,
      );
    });
    this.findings.replaceChildren(...items);
    if (!items.length) this.findings.append(make("li", { class: "none" }, "Nothing doubtful."));
  }

  showDecision() {
    const made = this.decisions.of(this.row);
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
    this.showTaken();
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
    this.word = number;
    for (const span of this.transcript.querySelectorAll(".word"))
      span.classList.toggle("chosen", Number(span.dataset.word) === number);
    if (number === null) return;
    this.describe(number);
    this.transcript.querySelector(".chosen")?.scrollIntoView({ block: "nearest" });
    this.wave.reveal(this.row.words[number].start, this.row.words[number].end);
  }

  describe(number) {
    const word = this.row.words[number];
    const heard = this.detail?.heard[number];
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
    this.play.replaceChildren(playing ? "■ Stop " : "▶ Play ", make("kbd", {}, "space"));
  }

  tick(time) {
    this.setPlaying(time !== null);
    this.wave.tick(time);
    const now = time === null ? -1 : this.row.words.findIndex((word) => word.start <= time && time < word.end);
    if (now === this.now) return;
    this.now = now;
    for (const span of this.transcript.querySelectorAll(".word"))
      span.classList.toggle("now", Number(span.dataset.word) === now);
  }
}

function legend() {
  const steps = Array.from({ length: 10 }, (_, level) => make("i", { class: `shade-${level}` }));
  return make(
    "span",
    { class: "legend", title: "Probability that a character (shade) or word (bar below it) was not said" },
    "not said: 0 ",
    ...steps,
    " 1",
  );
}
