// Keys outside of the editor: which key does what.
"use strict";

const REASONS = { b: "bad audio", w: "wrong speaker", i: "unintelligible", e: "nothing said" }; // of a skip, by key

class Keyboard {
  constructor(app) {
    this.app = app;
    this.shortcuts = new Shortcuts();
    this.moving = this.moves(); // which needs no utterance
    this.hearing = this.sounds();
    this.judging = this.decisions();
    document.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const { detail } = this.app;
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open]"))
      return;
    const field = event.target.closest("input[type=search], input[type=text], select, textarea");
    if (field) return this.keyInField(event, field);
    // buttons and sliders use some keys themselves
    if ([" ", "Enter"].includes(event.key) && event.target.closest("button, summary, input")) return;
    if (/^(Arrow|Page|Home|End)/.test(event.key) && event.target.closest("input")) return;
    // a letter belongs to the fix that is being typed, wherever the focus is
    if (detail.editing && isCharacter(event)) return detail.editor.text.focus();
    if (isCharacter(event) && !this.shortcuts.on) return;
    const name = keyName(event);
    const digit = /^[1-9]$/.test(name) && (() => detail.takeByDigit(Number(name) - 1));
    const judge = this.judging[name] ?? digit;
    const action = this.moving[name] ?? this.hearing[name] ?? judge;
    if (!action) return;
    event.preventDefault();
    if (this.moving[name]) action();
    else this.actOnShown(action, judge);
  }

  // A key is about the utterance that is chosen when it is pressed. What it plays waits until that is shown; what it
  // decides does not: nobody decides on what is not shown.
  actOnShown(action, judges) {
    const { app } = this;
    const { row } = app;
    if (!row) say("No utterance is chosen: the list is empty.");
    else if (!judges) app.whenShown(() => app.row === row && action());
    else if (app.isShown()) action();
  }

  keyInField(event, field) {
    const searching = field.type === "search";
    if (event.key === "Escape" && searching && field.value) {
      field.value = "";
      this.app.refilter();
      event.preventDefault();
    } else if (event.key === "Escape" || (event.key === "Enter" && searching)) this.app.focus();
  }

  moves() {
    const { app } = this;
    const page = (step) => () =>
      app.move(step * Math.max(1, Math.floor(byName("list").clientHeight / ROW_HEIGHT) - 1));
    const [next, before] = [() => app.move(1), () => app.move(-1)];
    return {
      j: next,
      ArrowDown: next,
      k: before,
      ArrowUp: before,
      PageDown: page(1),
      PageUp: page(-1),
      Home: () => app.move(-Infinity),
      End: () => app.move(Infinity),
      o: () => app.moveToOpen(),
      "/": () => {
        byName("search").focus();
        byName("search").select();
      },
      "?": () => byName("about").showModal(),
      u: () => app.undo(),
      U: () => app.redo(),
    };
  }

  sounds() {
    const { listening, detail } = this.app;
    const word = (direction) => () => {
      const forward = getComputedStyle(detail.transcript).direction === "rtl" ? -1 : 1;
      const step = direction * forward;
      const { length } = this.app.row.words;
      const from = detail.word ?? (step > 0 ? -1 : length);
      if (length) listening.playWord(Math.min(length - 1, Math.max(0, from + step)));
    };
    return {
      " ": () => listening.playAll(),
      0: () => listening.playFromStart(),
      ArrowRight: word(1),
      ArrowLeft: word(-1),
      Enter: () => listening.playAgain(),
      Escape: () => detail.wave.select(null),
      n: () => listening.playFinding((listening.finding + 1) % Math.max(1, this.app.row.issues.length)),
      r: () => listening.changeSpeed(),
      R: () => listening.changeSpeed(-1),
      l: () => listening.changeLoop(),
      p: () => listening.changeAutoplay(),
      "+": () => detail.wave.zoomBy(1.5),
      "-": () => detail.wave.zoomBy(1 / 1.5),
      g: () => detail.changeView("spectrogram"),
      v: () => detail.changeView("level"),
    };
  }

  decisions() {
    const { app } = this;
    const skips = Object.entries(REASONS).map(([key, reason]) => [key, () => app.decide("skip", reason)]);
    return {
      a: () => app.decide("accept"),
      f: () => app.decide("fix"),
      s: () => app.decide("skip"),
      h: () => app.detail.takeAll(),
      c: () => app.detail.comment.focus(),
      ...Object.fromEntries(skips),
    };
  }
}
