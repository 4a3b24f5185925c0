// The editor of the corrected transcript: a text field, into which findings can be copied one by one. Sound is played
// by keys, so that the hands stay on the text.
"use strict";

const EDITOR_HELP = [
  ["Ctrl Space", "all"],
  ["Ctrl Enter", "word"],
  ["Tab", "next doubtful word"],
  ["Alt 1…9", "findings"],
  ["Alt 0", "all of them"],
];

class Editor {
  // act: save(text), close(), changed(), take(number), takeAll(), playAll(), playWord(number), playFinding(number), changeSpeed(),
  // changeLoop()
  constructor(act) {
    this.act = act;
    this.text = make("textarea", {
      dir: "auto",
      rows: 2,
      spellcheck: "false",
      "aria-label": "Corrected transcript",
      "aria-describedby": "editor-help editor-warning",
    });
    this.warning = make("p", { id: "editor-warning", class: "warning", role: "status", hidden: true });
    const button = (name, onclick, text, key) => make("button", { class: name, onclick }, text, key && make("kbd", {}, key));
    const keys = EDITOR_HELP.flatMap(([key, what]) => [make("kbd", {}, key), ` ${what} `]);
    this.element = make(
      "div",
      { class: "editor" },
      this.text,
      this.warning,
      make(
        "div",
        { class: "buttons" },
        button("main", () => act.save(this.value), "Save fix ", "Enter"),
        button("", () => act.close(), "Close ", "Esc"),
        button("", () => this.startOver(), "Start over"),
        make("span", { id: "editor-help", class: "keys" }, ...keys),
      ),
    );
    this.text.addEventListener("input", () => this.follow());
    this.text.addEventListener("pointerdown", () => this.endTaking());
    this.text.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    event.stopPropagation();
    if (event.isComposing) return;
    const act = this.action(event);
    if (!act) return;
    event.preventDefault();
    act();
  }

  action(event) {
    const { key, code, ctrlKey, altKey, metaKey, shiftKey } = event;
    const digit = digitOf(event);
    if (ctrlKey && code === "Space") return () => this.act.playAll();
    if (ctrlKey && key === "Enter") return () => this.act.playWord(this.places.wordAt(this.text.selectionStart));
    if (altKey && (code === "Digit0" || key === "0")) return () => this.act.takeAll();
    if (altKey && digit) return () => this.act.take(digit - 1);
    if (altKey && code === "KeyR") return () => this.act.changeSpeed(shiftKey ? -1 : 1);
    if (altKey && code === "KeyL") return () => this.act.changeLoop();
    if (ctrlKey || altKey || metaKey) return null;
    if (this.taking && digit && !shiftKey) return () => this.act.take(digit - 1);
    if (key !== "Shift") this.endTaking();
    if (key === "Enter" && !shiftKey) return () => this.act.save(this.value);
    if (key === "Escape") return () => this.act.close();
    const next = key === "Tab" ? this.places.next(this.text.selectionStart, this.at, shiftKey ? -1 : 1) : null;
    return next === null ? null : () => this.visit(next); // after the last one, Tab leaves the text
  }

  endTaking() {
    this.taking = false;
  }

  get value() {
    return this.text.value.normalize("NFC").split(/\s+/).filter(Boolean).join(" ");
  }

  open(row, text) {
    this.places = new Places(row);
    this.written = row.text;
    this.taking = false; // whether digits copy findings: after the first one did, until something is typed
    this.at = null;
    this.text.value = text;
    this.follow();
    this.text.focus({ preventScroll: true });
    if (row.issues.length && !this.places.findings[0].used) this.select(0);
  }

  // Choose the text of a finding.
  select(number) {
    this.at = number;
    const { begin, stop } = this.places.findings[number];
    this.text.focus();
    this.text.setSelectionRange(begin, stop);
  }

  visit(number) {
    this.select(number);
    this.act.playFinding(number);
  }

  follow() {
    this.places.follow(this.text.value);
    this.act.changed();
    this.text.style.height = "auto";
    this.text.style.height = `${this.text.scrollHeight + 2}px`;
  }

  warn(message) {
    this.warning.textContent = message;
    this.warning.hidden = !message;
  }

  // Replace the written text of a finding by what was heard.
  take(issue, number) {
    const place = this.places.findings[number];
    if (place.used) return;
    let { begin, stop } = place;
    let heard = issue.heard;
    const { value } = this.text;
    if (issue.kind === "missing") heard = begin < value.length ? `${heard} ` : ` ${heard}`;
    else if (!heard && value[stop] === " ") stop++;
    else if (!heard && value[begin - 1] === " ") begin--;
    place.used = true;
    this.replace(begin, stop, heard);
  }

  startOver() {
    this.replace(0, this.text.value.length, this.written);
  }

  replace(begin, stop, text) {
    this.text.focus();
    this.text.setSelectionRange(begin, stop);
    // deprecated, but the only way of editing that the browser's own undo can undo
    if (text) document.execCommand("insertText", false, text);
    else document.execCommand("delete");
  }
}
